"""The model: what the user writes, and the log joint that the rest of the library sees. Models that JAX cannot trace
(``external``) included; other people's ways to write models are front ends."""

from isvi.model.binding import Bound, bind, make_target
from isvi.model.external import ExternalModel, ExternalTarget
from isvi.model.model import Model
from isvi.model.target import Target

__all__ = ["Bound", "ExternalModel", "ExternalTarget", "Model", "Target", "bind", "make_target"]
