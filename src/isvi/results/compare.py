"""Several fits of the same data, side by side."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, overload

import jax
import numpy as np
from rich.console import Console
from rich.table import Table

from isvi.core.errors import ConfigurationError, require
from isvi.data.groups.packs import real_rows
from isvi.results.fit import Fit
from isvi.results.weights.evaluation import ElboEstimate, default_draws, evaluate
from isvi.results.weights.exploration import Candidates
from isvi.results.weights.importance import importance

if TYPE_CHECKING:
    from pandas import DataFrame

COLUMNS = ("ELBO", "behind the best", "k-hat", "gradients", "seconds", "ended by")


class Row(NamedTuple):
    """One fit."""

    name: str
    elbo: ElboEstimate
    behind: ElboEstimate
    """The best ELBO minus this one; its standard error is that of the difference, over common random numbers."""
    k_hat: float
    gradients: int
    seconds: float
    status: str

    @property
    def cells(self) -> tuple[str, ...]:
        behind = "" if self.behind == (0.0, 0.0) else str(self.behind)
        numbers = (f"{self.k_hat:.2f}", f"{self.gradients:,}", f"{self.seconds:.2f}")
        return (self.name, str(self.elbo), behind, *numbers, self.status)


@dataclass(frozen=True)
class Comparison:
    """A table of fits, the best ELBO first.

    Attributes:
        rows: one per fit.
        draws: draws, and so passes over the data, per fit.
    """

    rows: list[Row]
    draws: int

    @property
    def best(self) -> str:
        return self.rows[0].name

    def __getitem__(self, name: str) -> Row:
        return next(row for row in self.rows if row.name == name)

    @property
    def caption(self) -> str:
        return f"{self.draws:,} draws, and passes over the data, per fit"

    def table(self) -> Table:
        table = Table(caption=self.caption, caption_justify="left")
        table.add_column("fit")
        for column in COLUMNS:
            table.add_column(column, justify="left" if column == "ended by" else "right")
        for row in self.rows:
            table.add_row(*row.cells)
        return table

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and strings, for JSON."""
        return {
            row.name: {
                "elbo": row.elbo.value,
                "elbo_standard_error": row.elbo.standard_error,
                "behind": row.behind.value,
                "behind_standard_error": row.behind.standard_error,
                "k_hat": row.k_hat if np.isfinite(row.k_hat) else None,
                "gradients": row.gradients,
                "seconds": row.seconds,
                "status": row.status,
            }
            for row in self.rows
        }

    def __rich__(self) -> Table:
        return self.table()

    def __str__(self) -> str:
        console = Console(width=120, no_color=True)
        with console.capture() as capture:
            console.print(self.table())
        return capture.get().rstrip("\n")

    __repr__ = __str__

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{name}</th>" for name in ("", *COLUMNS))
        rows = "".join(
            f"<tr><th>{escape(row.cells[0])}</th>" + "".join(f"<td>{escape(c)}</td>" for c in row.cells[1:]) + "</tr>"
            for row in self.rows
        )
        return f"<table><tr>{head}</tr>{rows}</table><p>{self.caption}</p>"


@overload
def compare(
    fits: Mapping[str, Fit] | Sequence[Fit], num_samples: int | None = ..., seed: int = ..., by: Literal["elbo"] = ...
) -> Comparison: ...
@overload
def compare(
    fits: Mapping[str, Fit] | Sequence[Fit], num_samples: int | None = ..., seed: int = ..., *, by: Literal["loo"]
) -> "DataFrame": ...
def compare(
    fits: Mapping[str, Fit] | Sequence[Fit],
    num_samples: int | None = None,
    seed: int = 0,
    by: Literal["elbo", "loo"] = "elbo",
) -> "Comparison | DataFrame":
    """Compare fits of the same latents to the same data by their ELBOs; or different models of the same data by what
    they say about rows that they have not seen.

    The fits share their random numbers, so that a difference is surer than either ELBO is. (Families that
    cover the latents in different pieces use them differently; the standard errors hold all the same.)

    Args:
        fits: by name; a list is numbered.
        num_samples: draws per fit, one pass over the data each; by default as many as :meth:`isvi.Fit.diagnose`.
        seed: of the draws.
        by: ``"elbo"``, or ``"loo"`` for arviz-stats' table of leave-one-out (:meth:`isvi.Fit.loo`), a DataFrame.
    """
    require(by in ("elbo", "loo"), ConfigurationError, f"compare by 'elbo' or by 'loo'; got {by!r}.")
    named = dict(fits) if isinstance(fits, Mapping) else {str(number): fit for number, fit in enumerate(fits)}
    if by == "loo":
        from isvi.exchange.loo import compare_by_loo

        _require_same_data(named)
        return compare_by_loo(named, num_samples, seed)
    _require_comparable(named)
    if num_samples is None:
        num_samples = min(default_draws(fit) for fit in named.values())
    evaluations = {name: evaluate(fit, num_samples, seed) for name, fit in named.items()}
    best = max(evaluations.values(), key=lambda one: np.nan_to_num(one.elbo.value, nan=-np.inf))
    rows = []
    for name, fit in named.items():
        one = evaluations[name]
        lead = (best.log_joint + best.entropy) - (one.log_joint + one.entropy)
        behind = ElboEstimate(float(lead.mean()), float(lead.std(ddof=1) / np.sqrt(num_samples)))
        seconds = fit.history.seconds[-1] if len(fit.history) else 0.0
        rows.append(
            Row(name, one.elbo, behind, importance(Candidates.of(one)).k_hat, fit.gradients, seconds, fit.status.kind)
        )
    return Comparison(sorted(rows, key=lambda row: row.behind.value), num_samples)


def _require_comparable(fits: dict[str, Fit]) -> None:
    _require_same_data(fits)
    (first_name, first), *others = fits.items()
    for name, fit in others:
        shapes, expected = _shapes(fit), _shapes(first)
        require(
            shapes == expected,
            ConfigurationError,
            f"compare needs fits of the same latents: {first_name!r} has {expected}, {name!r} has {shapes}.",
        )


def _require_same_data(fits: dict[str, Fit]) -> None:
    require(len(fits) > 0, ConfigurationError, "compare needs at least one fit; got none.")
    (first_name, first), *others = fits.items()
    for name, fit in others:
        require(
            fit.data().size == first.data().size,
            ConfigurationError,
            f"compare needs fits of the same data: {first_name!r} has {first.data().size:,} rows, {name!r} has "
            f"{fit.data().size:,}.",
        )
        require(
            _same_data(first, fit),
            ConfigurationError,
            f"compare needs fits of the same data: {first_name!r} and {name!r} have the same number of rows, but the "
            "columns do not have the same sums.",
        )


def _shapes(fit: Fit) -> dict[str, tuple[int, ...]]:
    return {name: tuple(fit.model.latents[name].shape) for name in sorted(fit.model.latents)}


def _same_data(a: Fit, b: Fit) -> bool:
    """Whether columns have the same sums, in whatever order and mini-batches the rows are."""
    sums_a, sums_b = _sums(a), _sums(b)
    if sums_a.keys() != sums_b.keys():
        return True  # two front ends may hold the same data in different ways
    pairs = [(sums_a[column], sums_b[column]) for column in sums_a]
    return all(abs(one[0] - other[0]) <= 1e-9 * (one[1] + other[1]) for one, other in pairs)


def _sums(fit: Fit) -> dict[str, tuple[float, float]]:
    """The sum of every column, and of its absolute values."""
    sums: dict[str, tuple[float, float]] = {}
    pieces = (real_rows(piece) for part in fit.data().parts() for piece in (part.full, part.rest))
    for path, leaf in (named for piece in pieces for named in jax.tree_util.tree_leaves_with_path(piece)):
        column, values = jax.tree_util.keystr(path), np.asarray(leaf, np.float64)
        total, size = sums.get(column, (0.0, 0.0))
        sums[column] = (total + float(values.sum()), size + float(np.abs(values).sum()))
    return sums
