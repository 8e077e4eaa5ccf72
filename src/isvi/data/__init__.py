"""Data as mini-batches that keep their identity from epoch to epoch; and sources of data larger than memory."""

from isvi.data.batches import Batches
from isvi.data.cache import Cached
from isvi.data.dataset import Batch, Dataset
from isvi.data.npy import Npy
from isvi.data.opening import Data, open_data
from isvi.data.parquet import Parquet
from isvi.data.schedule import Schedule
from isvi.data.source import Source
from isvi.data.stream import Stream
from isvi.data.zarr import Zarr

__all__ = [
    "Batch",
    "Batches",
    "Cached",
    "Data",
    "Dataset",
    "Npy",
    "Parquet",
    "Schedule",
    "Source",
    "Stream",
    "Zarr",
    "open_data",
]
