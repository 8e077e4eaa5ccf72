"""What came out of a run, and what can be done with it: draws, summaries, densities, ELBOs, files, comparisons. What
comes in needs a finished fit only; judging it is done in ``diagnosis``."""

from isvi.results.compare import Comparison, compare
from isvi.results.fit import Fit
from isvi.results.history import History
from isvi.results.saving import load
from isvi.results.status import Status
from isvi.results.weights.evaluation import ElboEstimate

__all__ = ["Comparison", "ElboEstimate", "Fit", "History", "Status", "compare", "load"]
