"""The memory for up to a thousand latents: what it keeps, what records say, what is learned from that, and its doubts.
``memory`` is the whole of it, and the other files are its parts."""

from isvi.auto.dense.known import Sizes
from isvi.auto.dense.memory import LARGEST_DIM, MEAN_TOLERANCE, SD_TOLERANCE, Dense, closest

__all__ = ["LARGEST_DIM", "MEAN_TOLERANCE", "SD_TOLERANCE", "Dense", "Sizes", "closest"]
