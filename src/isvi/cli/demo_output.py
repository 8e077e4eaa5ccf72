"""What the demo prints and draws."""

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from rich.console import Console
from rich.table import Table

from isvi.core.errors import ConfigurationError, require

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from isvi.cli.demo import Run
    from isvi.datasets import Flights, LogisticRegression

OURS, SGD = "#0072B2", "#D55E00"
SMALLEST_GAP_DRAWN = 1e-3


def require_matplotlib() -> None:
    """Before anything is computed, not after."""
    require(
        find_spec("matplotlib") is not None,
        ConfigurationError,
        "The demo draws a figure with matplotlib, which is not installed: pip install 'isvi[demo]'.",
    )


def print_problem(console: Console, flights: "Flights") -> None:
    rows, columns = flights.x.shape
    console.print(
        f"{rows:,} flights from New York in 2013; {flights.late.mean():.1%} arrived more than 15 minutes late.\n"
        f"Logistic regression on hour, distance, month, carrier and origin: {columns} coefficients.",
        highlight=False,
    )


def print_coefficients(console: Console, flights: "Flights", problem: "LogisticRegression", ours: "Run") -> None:
    """The fit beside the known answer."""
    mode, covariance = problem.laplace
    best_mean, best_sd = problem.mean_field_optimum
    mean, sd = ours.fit.mean()["w"], ours.fit.sd()["w"]
    table = Table(
        title="Log-odds of being late: the fit, and the known answer",
        caption="alone: with the other coefficients known, which is what independent Gaussians can express. "
        "marginal: of the posterior itself (Laplace's approximation), wider where coefficients are correlated.",
        caption_justify="left",
    )
    table.add_column("coefficient")
    for heading in ("fit: mean", "fit: sd", "mode", "sd, alone", "sd, marginal"):
        table.add_column(heading, justify="right")
    for row in zip(flights.names, mean, sd, mode, best_sd, np.sqrt(np.diag(covariance)), strict=True):
        table.add_row(row[0], *(f"{number:.4f}" for number in row[1:]))
    console.print(table)
    off = np.abs(mean - best_mean) / np.sqrt(np.diag(covariance))
    console.print(
        f"Furthest mean from the best one: {off.max():.2f} posterior sd ({flights.names[int(off.argmax())]}). "
        f"ELBO: {ours.gap:.2f} nats below the best possible with independent Gaussians.",
        highlight=False,
    )


def print_comparison(console: Console, ours: "Run", sgd: "Sequence[Run]") -> None:
    """Model gradients for the same ELBO."""
    table = Table()
    for heading in ("method", "model gradients", "nats below the best ELBO", "seconds, with compilation"):
        table.add_column(heading, justify="left" if heading == "method" else "right")
    for name, run in [("isvi, as above", ours), *(("plain SGD", run) for run in sgd)]:
        table.add_row(name, f"{run.fit.gradients:,}", f"{run.gap:,.2f}", f"{run.seconds:.1f}")
    console.print(table)
    console.print(verdict(ours, sgd), highlight=False)


def verdict(ours: "Run", sgd: "Sequence[Run]") -> str:
    """One sentence, whichever way it went."""
    mine = ours.fit.gradients
    below = max((run.fit.gradients for run in sgd if run.gap > ours.gap), default=0)
    reached = min((run.fit.gradients for run in sgd if run.gap <= ours.gap), default=None)
    if reached is None:
        rest = f"not reached with {below:,} ({below / mine:.3g} times as many)"
    elif below:
        rest = f"between {below:,} and {reached:,} ({below / mine:.3g} to {reached / mine:.3g} times as many)"
    else:
        rest = f"at most {reached:,} ({reached / mine:.3g} times as many)"
    return f"Model gradients for this ELBO: isvi {mine:,}; plain SGD {rest}."


def save_figure(folder: Path, ours: "Run", sgd: "Sequence[Run]") -> Path:
    """ELBO while fitting, and the exact distance from the best at the end."""
    from matplotlib.figure import Figure

    from isvi.plots import plot_elbo

    figure = Figure(figsize=(9.5, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    nearest = min(sgd, key=lambda run: abs(run.fit.gradients - ours.fit.gradients))
    plot_elbo({"isvi": ours.fit.history, "plain SGD": nearest.fit.history}, left)
    left.set_title("while fitting (isvi: of full rank first, of its family in the last pass)", fontsize=9)
    _draw_gaps(right, ours, sgd)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "elbo.png"
    figure.savefig(path, dpi=150)
    return path


def _draw_gaps(axes: "Axes", ours: "Run", sgd: "Sequence[Run]") -> None:
    from matplotlib.ticker import FuncFormatter, NullFormatter

    runs = [ours, *sgd]
    gradients, gaps = [run.fit.gradients for run in runs], [max(run.gap, SMALLEST_GAP_DRAWN) for run in runs]
    axes.loglog(gradients[1:], gaps[1:], "o-", color=SGD, label="plain SGD, one run per budget", clip_on=False)
    axes.loglog(gradients[:1], gaps[:1], "*", color=OURS, markersize=14, label="isvi.fit, defaults", clip_on=False)
    axes.axhline(gaps[0], color=OURS, linewidth=0.8, linestyle=":")
    # Whole decades, so that there are always numbers on both axes.
    axes.set_xlim(*(10.0 ** np.array([np.floor(np.log10(min(gradients))), np.ceil(np.log10(max(gradients)))])))
    axes.set_ylim(*(10.0 ** np.array([np.floor(np.log10(min(gaps))), np.ceil(np.log10(max(gaps)))])))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}" if value >= 1 else f"{value:g}"))
        axis.set_minor_formatter(NullFormatter())
    axes.set_xlabel("model gradients evaluated")
    axes.set_ylabel("nats below the best ELBO")
    axes.set_title("at the end: exact, by quadrature over all rows", fontsize=9)
    axes.grid(alpha=0.3, linewidth=0.5, which="both")
    axes.legend(frameon=False, fontsize=8)
