"""``isvi demo``: late flights, fitted, checked against the known answer, and compared with plain SGD."""

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer
from rich.console import Console

if TYPE_CHECKING:
    from isvi import Fit
    from isvi.datasets import LogisticRegression

SGD_BUDGETS = (0.1, 0.3, 1, 3, 10, 30)
"""What plain SGD is given, as multiples of what the default fit used."""


class Run(NamedTuple):
    """A finished fit, and how far below the best possible ELBO it ended (in nats, without noise)."""

    fit: "Fit"
    gap: float
    seconds: float


def demo(
    rows: Annotated[int | None, typer.Option(min=100, help="Use only this many flights, drawn at random.")] = None,
    output: Annotated[Path, typer.Option(help="Folder for the figure.")] = Path("demo-output"),
) -> None:
    """Which flights are late? A Bayesian logistic regression on 327,346 flights, with the known answer beside it."""
    import isvi
    from isvi.cli import demo_output
    from isvi.datasets import LogisticRegression, load_flights

    console = Console()
    demo_output.require_matplotlib()
    flights = load_flights(rows)
    problem = LogisticRegression(flights.x, flights.late)
    demo_output.print_problem(console, flights)
    with console.status("computing the known answer: Newton's method on all rows, in float64"):
        started = time.perf_counter()
        best = problem.elbo(*problem.mean_field_optimum)
        console.print(f"Known answer: Newton's method on all rows, in float64 ({time.perf_counter() - started:.1f} s).")

    # Independent Gaussians, whose best possible ELBO is known without noise.
    console.print("\n[bold]isvi.fit(model, data, family=isvi.MeanField(), seed=0)[/bold]")
    ours = _timed(
        problem, best, partial(isvi.fit, problem.model(), problem.data, family=isvi.MeanField(), progress=True)
    )
    demo_output.print_coefficients(console, flights, problem, ours)

    console.print("\n[bold]Plain SGD (Adam, one fresh gradient per step) on the same data[/bold]")
    sgd: list[Run] = []
    for budget in (max(1, round(share * ours.fit.gradients)) for share in SGD_BUDGETS):
        with console.status(f"plain SGD with {budget:,} gradients"):
            sgd.append(_timed(problem, best, partial(_plain_sgd, problem, budget)))
        if sgd[-1].gap <= ours.gap:
            break
    demo_output.print_comparison(console, ours, sgd)
    path = demo_output.save_figure(output, ours, sgd)
    console.print(f"\nFigure: {path}", markup=False)


def _plain_sgd(problem: "LogisticRegression", budget: int) -> "Fit":
    import isvi

    # Its learning rate falls to zero over whatever budget it is given, so every budget is SGD at its best.
    return isvi.fit(problem.model(), problem.data, algorithm=isvi.SGD(), budget=budget, seed=0, progress=False)


def _timed(problem: "LogisticRegression", best: float, run: "Callable[[], Fit]") -> Run:
    import numpy as np

    started = time.perf_counter()
    fit = run()
    seconds = time.perf_counter() - started
    mean, log_scale = (np.asarray(part, np.float64) for part in fit.params)
    return Run(fit, best - problem.elbo(mean, np.exp(log_scale)), seconds)
