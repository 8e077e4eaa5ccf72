"""From ``isvi.fit`` to a finished run: what was chosen, where it starts, the loop and who drives it, who is told on the
way. What decides a single step belongs to an algorithm; what came out, to ``results``."""

from isvi.fitting.fit import fit, resume
from isvi.fitting.helped import with_workers
from isvi.fitting.running.callbacks import Callback, MLflow, TensorBoard

__all__ = ["Callback", "MLflow", "TensorBoard", "fit", "resume", "with_workers"]
