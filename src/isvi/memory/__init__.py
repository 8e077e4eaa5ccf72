"""Records of model evaluations, and slots that keep them. What comes in is plain arrays and how they are stored: what a
record is good for is told above."""

from isvi.memory.record import Record
from isvi.memory.store import RecordStore

__all__ = ["Record", "RecordStore"]
