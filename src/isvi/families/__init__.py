"""Variational families: what an approximation can look like. One file per family, written for one point z on the
factors of ``base``; and the special functions that several need. Nothing here sees a model or data."""

from isvi.families.approximation import Approximation, approximate
from isvi.families.base import Factors, Family, Plan
from isvi.families.block import Block, FullRank
from isvi.families.dirichlet import Beta, Dirichlet
from isvi.families.gamma import Gamma
from isvi.families.gaussian import MeanField
from isvi.families.log_normal import LogNormal
from isvi.families.low_rank import LowRank
from isvi.families.nested import Nested
from isvi.families.student_t import StudentT
from isvi.families.warped import Warped

__all__ = [
    "Approximation",
    "Beta",
    "Block",
    "Dirichlet",
    "Factors",
    "Family",
    "FullRank",
    "Gamma",
    "LogNormal",
    "LowRank",
    "MeanField",
    "Nested",
    "Plan",
    "StudentT",
    "Warped",
    "approximate",
]
