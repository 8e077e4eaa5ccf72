"""From ``isvi.fit`` to a finished run: what was chosen, where it starts, the loop and who drives it, who is told on the
way. What decides a single step belongs to an algorithm; what came out, to ``results``."""

from isvi.fitting.callbacks import Callback, MLflow, TensorBoard
from isvi.fitting.fit import fit, resume

__all__ = ["Callback", "MLflow", "TensorBoard", "fit", "resume"]
