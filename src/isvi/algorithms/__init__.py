"""The paper: when to make a record, and which records to sum. One small file an algorithm; also what an algorithm is
(``base``), how one becomes a step (``step``), and rules of reuse (``policies``). The default has a room of its own."""

from isvi.algorithms.base import Algorithm, AlgorithmOptions, Memory
from isvi.algorithms.isag import ISAG
from isvi.algorithms.isgd import ISGD
from isvi.algorithms.natural import Natural
from isvi.algorithms.policies import Adaptive, FixedSteps, Policy, Random
from isvi.algorithms.sag import SAG
from isvi.algorithms.sgd import SGD
from isvi.algorithms.sra import SRA
from isvi.algorithms.step import Info, Method, State, build

__all__ = [
    "ISAG",
    "ISGD",
    "SAG",
    "SGD",
    "SRA",
    "Adaptive",
    "Algorithm",
    "AlgorithmOptions",
    "FixedSteps",
    "Info",
    "Memory",
    "Method",
    "Natural",
    "Policy",
    "Random",
    "State",
    "build",
]
