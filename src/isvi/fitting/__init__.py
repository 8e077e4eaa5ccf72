"""Fitting: the loop around compiled steps, and what comes out of it."""

from isvi.fitting.fit import fit
from isvi.fitting.history import History
from isvi.fitting.result import ElboEstimate, Fit
from isvi.fitting.status import Status

__all__ = ["ElboEstimate", "Fit", "History", "Status", "fit"]
