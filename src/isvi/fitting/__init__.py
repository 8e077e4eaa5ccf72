"""Fitting: the loop around compiled steps, and what comes out of it."""

from isvi.fitting.callbacks import Callback, MLflow, TensorBoard
from isvi.fitting.checkpoints import Checkpoint
from isvi.fitting.compare import Comparison, compare
from isvi.fitting.diagnosis import Diagnosis
from isvi.fitting.evaluation import ElboEstimate
from isvi.fitting.fit import fit, resume
from isvi.fitting.history import History
from isvi.fitting.result import Fit
from isvi.fitting.saving import load
from isvi.fitting.status import Status

__all__ = [
    "Callback",
    "Checkpoint",
    "Comparison",
    "Diagnosis",
    "ElboEstimate",
    "Fit",
    "History",
    "MLflow",
    "Status",
    "TensorBoard",
    "compare",
    "fit",
    "load",
    "resume",
]
