"""Telling others how a fit is going."""

import logging
from collections.abc import Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Self

from isvi.core.extras import import_extra
from isvi.fitting.running.progress import Reporter, Row, reporter

if TYPE_CHECKING:
    from isvi.results.fit import Fit

log = logging.getLogger("isvi")


class Callback:
    """Told about a fit while it runs. Override what is of interest.

    A callback that raises is reported in the log and not called again: a full disk under its log must not end a fit.
    """

    def on_start(self, budget: int) -> None:
        """Before the first step; ``budget`` is the number of model gradients that may be evaluated."""

    def on_row(self, row: Row) -> bool | None:
        """About a hundred times during a fit. Return True to end it here."""

    def on_end(self, fit: "Fit") -> None:
        """After the last step, however the fit ended."""


class TensorBoard(Callback):
    """Writes the ELBO, the weights' health and the rate for TensorBoard. Needs the extra ``isvi[tensorboard]``."""

    def __init__(self, folder: str) -> None:
        self._writer = import_extra("tensorboardX", "tensorboard", "isvi.TensorBoard").SummaryWriter(str(folder))

    def on_row(self, row: Row) -> None:
        for name, value in row.numbers().items():
            self._writer.add_scalar(f"isvi/{name}", value, row.gradients)

    def on_end(self, fit: "Fit") -> None:
        self._writer.add_text("isvi/status", str(fit.status), fit.gradients)
        self._writer.close()


class MLflow(Callback):
    """Logs the same numbers to the active MLflow run, or to a new one. Needs the extra ``isvi[mlflow]``."""

    def __init__(self, **options: Any) -> None:
        """``options`` are those of ``mlflow.start_run``, if there is no active run."""
        self._mlflow = import_extra("mlflow", "mlflow", "isvi.MLflow")
        self._options = options
        self._own = False

    def on_start(self, budget: int) -> None:
        if self._mlflow.active_run() is None:
            self._mlflow.start_run(**self._options)
            self._own = True
        self._mlflow.log_param("isvi.budget", budget)

    def on_row(self, row: Row) -> None:
        numbers = {f"isvi.{name}": value for name, value in row.numbers().items()}
        self._mlflow.log_metrics(numbers, step=row.gradients)

    def on_end(self, fit: "Fit") -> None:
        self._mlflow.set_tag("isvi.status", str(fit.status))
        if self._own:
            self._mlflow.end_run()


class Reporters:
    """The progress bar and the callbacks, as one reporter."""

    def __init__(self, bar: Reporter, callbacks: Sequence[Callback], budget: int) -> None:
        self.stop_reason: str | None = None
        self._bar, self._callbacks, self._budget = bar, list(callbacks), budget
        self._open = ExitStack()

    def __enter__(self) -> Self:
        for callback in list(self._callbacks):
            self._call(callback, "on_start", self._budget)
        self._open.enter_context(self._bar)
        return self

    def __exit__(self, *exception: object) -> None:
        self._open.close()

    def update(self, row: Row) -> None:
        self._bar.update(row)
        for callback in list(self._callbacks):
            if self._call(callback, "on_row", row):
                self.stop_reason = f"stopped by the callback {type(callback).__name__}"

    def end(self, fit: "Fit") -> None:
        for callback in list(self._callbacks):
            self._call(callback, "on_end", fit)

    def _call(self, callback: Callback, method: str, argument: object) -> bool:
        try:
            return bool(getattr(callback, method)(argument))
        except Exception:
            log.exception("the callback %s raised in %s and is not called again", type(callback).__name__, method)
            self._callbacks.remove(callback)
            return False


def reporters(progress: bool | None, budget: int, callbacks: Sequence[Callback]) -> Reporters:
    return Reporters(reporter(progress, budget), callbacks, budget)
