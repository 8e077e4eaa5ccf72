"""A table of posterior means, spreads and quantiles."""

from dataclasses import dataclass
from html import escape
from io import StringIO
from typing import TYPE_CHECKING

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from isvi.core.coordinates import entry_labels
from isvi.core.text import shown
from isvi.results.moments import Marginals

if TYPE_CHECKING:
    from isvi.results.fit import Fit

COLUMNS = ("mean", "sd", "5%", "50%", "95%")


@dataclass(frozen=True)
class Summary:
    """Posterior summaries, one row per entry of every latent.

    Attributes:
        names: row labels such as ``w[3]``.
        values: ``(rows, 5)``: mean, sd and the 5, 50 and 95% quantiles.
        caption: what the numbers are from.
        limit: how many rows are shown when printed; ``values`` always has all.
    """

    names: list[str]
    values: np.ndarray
    caption: str
    limit: int = 20

    def __getitem__(self, name: str) -> dict[str, float]:
        row = self.values[self.names.index(name)]
        return dict(zip(COLUMNS, map(float, row), strict=True))

    def table(self) -> Table:
        table = Table(caption=Text(shown(self.caption)), caption_justify="left")
        table.add_column("latent")
        for column in COLUMNS:
            table.add_column(column, justify="right")
        for name, row in zip(self.names[: self.limit], self.values, strict=False):
            table.add_row(Text(shown(name)), *(f"{number:.4g}" for number in row))
        if len(self.names) > self.limit:
            table.add_row(f"... {len(self.names) - self.limit:,} more", *("" for _ in COLUMNS))
        return table

    def __rich__(self) -> Table:
        return self.table()

    def __str__(self) -> str:
        # Whatever the terminal is, and the environment says about it: the same text everywhere.
        console = Console(file=StringIO(), width=100, force_terminal=False, color_system=None)
        console.print(self.table())
        return console.file.getvalue().rstrip("\n")  # type: ignore[attr-defined]

    __repr__ = __str__

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{name}</th>" for name in ("", *COLUMNS))
        rows = "".join(
            f"<tr><th>{escape(shown(name))}</th>" + "".join(f"<td>{number:.4g}</td>" for number in row) + "</tr>"
            for name, row in zip(self.names[: self.limit], self.values, strict=False)
        )
        return f"<table><tr>{head}</tr>{rows}</table><p>{escape(shown(self.caption))}</p>"


def caption(fit: "Fit") -> str:
    """What was fitted, at what cost, and how it ended."""
    shape = fit.approximation.description
    effort = f"{fit.gradients:,} model gradients, {fit.steps:,} steps"
    if fit.starts:
        effort += f", the best of {len(fit.starts)} starts"
    return f"{shape[0].upper()}{shape[1:]}; {effort}; {fit.status}"


def summarize(marginals: dict[str, Marginals], caption: str, limit: int) -> Summary:
    """Summaries of every entry."""
    names = [label for name, one in marginals.items() for label in entry_labels(name, one.mean.shape)]
    columns = [
        np.concatenate([one.mean.ravel() for one in marginals.values()]),
        np.concatenate([one.sd.ravel() for one in marginals.values()]),
        *np.concatenate([one.quantiles.reshape(3, -1) for one in marginals.values()], axis=1),
    ]
    return Summary(names, np.stack(columns, axis=1), caption, limit)
