"""Algorithms: when to make a record, and which records to sum."""

from isvi.algorithms.auto import Auto
from isvi.algorithms.base import Algorithm, AlgorithmOptions, Memory
from isvi.algorithms.isag import ISAG
from isvi.algorithms.isgd import ISGD
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
    "Auto",
    "FixedSteps",
    "Info",
    "Memory",
    "Method",
    "Policy",
    "Random",
    "State",
    "build",
]
