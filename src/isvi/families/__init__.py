"""Variational families: what an approximation can look like."""

from isvi.families.approximation import Approximation, approximate
from isvi.families.base import Factors, Family, Plan
from isvi.families.block import Block, FullRank
from isvi.families.gaussian import MeanField

__all__ = [
    "Approximation",
    "Block",
    "Factors",
    "Family",
    "FullRank",
    "MeanField",
    "Plan",
    "approximate",
]
