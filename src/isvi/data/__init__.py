"""Data as mini-batches that keep their identity from epoch to epoch."""

from isvi.data.dataset import Batch, Dataset
from isvi.data.schedule import Schedule

__all__ = ["Batch", "Dataset", "Schedule"]
