"""Fitting: the loop around compiled steps, and what comes out of it."""

from isvi.fitting.compare import Comparison, compare
from isvi.fitting.diagnosis import Diagnosis
from isvi.fitting.evaluation import ElboEstimate
from isvi.fitting.fit import fit
from isvi.fitting.history import History
from isvi.fitting.result import Fit
from isvi.fitting.status import Status

__all__ = ["Comparison", "Diagnosis", "ElboEstimate", "Fit", "History", "Status", "compare", "fit"]
