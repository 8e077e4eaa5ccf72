"""A table of posterior means, spreads and quantiles."""

from dataclasses import dataclass

import numpy as np
from rich.console import Console
from rich.table import Table

from isvi.core.coordinates import entry_labels

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
        table = Table(caption=self.caption, caption_justify="left")
        table.add_column("latent")
        for column in COLUMNS:
            table.add_column(column, justify="right")
        for name, row in zip(self.names[: self.limit], self.values, strict=False):
            table.add_row(name, *(f"{number:.4g}" for number in row))
        if len(self.names) > self.limit:
            table.add_row(f"... {len(self.names) - self.limit:,} more", *("" for _ in COLUMNS))
        return table

    def __rich__(self) -> Table:
        return self.table()

    def __str__(self) -> str:
        console = Console(width=100, no_color=True)
        with console.capture() as capture:
            console.print(self.table())
        return capture.get().rstrip("\n")

    __repr__ = __str__

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{name}</th>" for name in ("", *COLUMNS))
        rows = "".join(
            f"<tr><th>{name}</th>" + "".join(f"<td>{number:.4g}</td>" for number in row) + "</tr>"
            for name, row in zip(self.names[: self.limit], self.values, strict=False)
        )
        return f"<table><tr>{head}</tr>{rows}</table><p>{self.caption}</p>"


def summarize(draws: dict[str, np.ndarray], caption: str, limit: int) -> Summary:
    """Summaries of draws with a leading axis."""
    names = [label for name, values in draws.items() for label in entry_labels(name, values.shape[1:])]
    flat = np.concatenate([values.reshape(len(values), -1) for values in draws.values()], axis=1)
    quantiles = np.quantile(flat, [0.05, 0.5, 0.95], axis=0)
    columns = np.stack([flat.mean(0), flat.std(0, ddof=1, dtype=np.float64), *quantiles], axis=1)
    return Summary(names, columns, caption, limit)
