"""Records of model evaluations, and stores that keep them."""

from isvi.memory.record import Record
from isvi.memory.store import RecordStore

__all__ = ["Record", "RecordStore"]
