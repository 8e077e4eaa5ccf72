"""The model: what the user writes, and the log joint that the rest of the library sees."""

from isvi.model.model import Model
from isvi.model.target import Target

__all__ = ["Model", "Target"]
