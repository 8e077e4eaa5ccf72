"""Telling a person how a fit is going."""

import sys
from typing import NamedTuple, Protocol, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn


class Row(NamedTuple):
    """The numbers of the moment."""

    gradients: int
    elbo: float
    """Of all mini-batches by their newest records, or of those just visited while some are not known well enough."""
    elbo_standard_error: float
    reused: float
    """Share of the steps that reused a record."""
    effective: float
    """Effective fraction of the remembered records' weights."""
    rate: float
    """Model gradients per second."""

    def numbers(self) -> dict[str, float]:
        """Those that are worth a curve against ``gradients``."""
        return {name: float(value) for name, value in self._asdict().items() if name != "gradients"}


def describe(row: Row) -> str:
    """One line: ELBO with its standard error, share of reused steps, weight health, rate."""
    parts = [f"ELBO {row.elbo:,.1f} ± {row.elbo_standard_error:,.1f}"]
    if row.reused > 0:
        parts.append(f"{row.reused:.0%} reused")
    parts.append(f"weights {row.effective:.2f}")
    parts.append(f"{row.rate:,.0f} gradients/s")
    return " · ".join(parts)


class Reporter(Protocol):
    """Receives rows while a fit runs."""

    def __enter__(self) -> Self: ...
    def __exit__(self, *exception: object) -> None: ...
    def update(self, row: Row) -> None: ...


class Silent:
    """Says nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None: ...

    def update(self, row: Row) -> None: ...


class Bar:
    """A live bar in a terminal or a notebook."""

    def __init__(self, budget: int, console: Console) -> None:
        self._progress = Progress(
            TextColumn("isvi"),
            BarColumn(bar_width=24),
            TextColumn("{task.completed:,}/{task.total:,}"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.description}"),
            console=console,
        )
        self._task = self._progress.add_task("compiling", total=budget)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._progress.stop()

    def update(self, row: Row) -> None:
        self._progress.update(self._task, completed=row.gradients, description=describe(row))


class Lines:
    """A line for every tenth of the budget, for logs and pipes."""

    def __init__(self, budget: int, console: Console) -> None:
        self._budget, self._console, self._tenth = budget, console, 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None: ...

    def update(self, row: Row) -> None:
        tenth = 10 * row.gradients // self._budget
        if tenth > self._tenth:
            self._tenth = tenth
            self._console.print(f"isvi {row.gradients:,}/{self._budget:,} gradients · {describe(row)}", soft_wrap=True)


def reporter(progress: bool | None, budget: int) -> Reporter:
    """``True``: a bar in a terminal, lines elsewhere. ``None``: a bar in a terminal, nothing elsewhere."""
    console = Console(file=sys.stderr)
    live = console.is_terminal or console.is_jupyter
    if progress is False or (progress is None and not live):
        return Silent()
    return Bar(budget, console) if live else Lines(budget, console)
