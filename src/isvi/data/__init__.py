"""Rows as mini-batches that keep their identity from epoch to epoch, in memory or not. A further place that rows come
from is one more file with a :class:`Source`; a model or a draw has no business here."""

from isvi.data.batches import Batches
from isvi.data.cache import Cached
from isvi.data.dataset import Batch, Dataset
from isvi.data.files.npy import Npy
from isvi.data.files.parquet import Parquet
from isvi.data.files.zarr import Zarr
from isvi.data.groups.grouped import Grouped, grouped
from isvi.data.opening import Data, open_data
from isvi.data.schedule import Schedule
from isvi.data.source import Source
from isvi.data.stream import Stream

__all__ = [
    "Batch",
    "Batches",
    "Cached",
    "Data",
    "Dataset",
    "Grouped",
    "Npy",
    "Parquet",
    "Schedule",
    "Source",
    "Stream",
    "Zarr",
    "grouped",
    "open_data",
]
