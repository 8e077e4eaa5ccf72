"""Going on later: a run's state on disk, which run that is, and its choices as JSON. What comes in is needed to resume
a run; finished fits are saved in ``results``."""

from isvi.checkpoints.checkpoints import Checkpoint, Checkpoints

__all__ = ["Checkpoint", "Checkpoints"]
