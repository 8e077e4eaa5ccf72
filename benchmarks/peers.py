"""``python -m benchmarks.peers``: the default of ``isvi.fit``, with nothing tuned, against tuned rivals.

Writes ``peers.md``, ``peers.csv``, ``tuning.csv`` and ``peers.png``/``.svg``. Finished runs are kept in the CSV: a
second call goes on where the first one ended.
"""

import os
import time
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.figure import draw
from benchmarks.full_batch import run_laplace, run_pathfinder
from benchmarks.measure import Run
from benchmarks.problems import PROBLEMS, Problem
from benchmarks.pymc_advi import NAME as PYMC
from benchmarks.pymc_advi import PyMCRacer, why_not
from benchmarks.report import DEFAULT, write_report
from benchmarks.rivals import STOCHASTIC, Racer, run_default
from benchmarks.store import Store
from benchmarks.tuning import Tunable, tune

BUDGETS = {"b'": 100_000, "d": 100_000, "e": 100_000, "f": 100_000}
BUDGET = 30_000
FULL_BATCH = {"L-BFGS + Laplace": run_laplace, "Pathfinder": run_pathfinder}
TUNABLE = [*STOCHASTIC, PYMC]
ALL = [DEFAULT, *FULL_BATCH, *TUNABLE]


def make_racer(problem: Problem, rival: str) -> Tunable:
    return PyMCRacer(problem) if rival == PYMC else Racer(problem, STOCHASTIC[rival](problem))


def without_the_absent(problem: Problem, rivals: list[str]) -> list[str]:
    """The rivals that can run on a problem; of the one that perhaps cannot, it is said why."""
    reason = why_not(problem) if PYMC in rivals else None
    if reason is None:
        return rivals
    typer.echo(f"({problem.letter}) {PYMC} is left out: {reason}.")
    return [rival for rival in rivals if rival != PYMC]


def race(problem: Problem, rivals: list[str], seeds: int, rival_seeds: int, budget: int, store: Store) -> None:
    """All runs on one problem that are not in the store yet."""
    for rival in rivals:
        if rival in TUNABLE:
            _race_tuned(problem, rival, rival_seeds, budget, store)
            continue
        for seed in range(seeds if rival == DEFAULT else rival_seeds):
            if not store.has(problem.letter, rival, seed):
                _keep(store, problem, rival, seed, budget, _run_once(problem, rival, seed, budget))


def _run_once(problem: Problem, rival: str, seed: int, budget: int) -> Run:
    if rival == DEFAULT:
        return run_default(problem, seed)
    return FULL_BATCH[rival](problem, seed, budget)


def _race_tuned(problem: Problem, rival: str, seeds: int, budget: int, store: Store) -> None:
    missing = [seed for seed in range(seeds) if not store.has(problem.letter, rival, seed)]
    if not missing:
        return
    racer = make_racer(problem, rival)
    setting, budget = tune(problem, rival, racer, budget, store)
    for seed in missing:
        _keep(store, problem, rival, seed, budget, racer.run(setting, seed, budget))


def _keep(store: Store, problem: Problem, rival: str, seed: int, budget: int, run: Run) -> None:
    store.add(problem, rival, seed, budget, run)
    last = run.points[-1]
    gap = f"{run.best_gap(problem):.4f} nats per latent" if problem.exact else f"ELBO {last.elbo:,.2f}"
    typer.echo(
        f"{time.strftime('%H:%M:%S')} ({problem.letter}) {rival}, seed {seed}: {gap} after {last.gradients:,} "
        f"gradients, {last.time.wall:.2f} s, {last.time.cpu:.2f} CPU s; {run.setting}; {run.status}"
    )


def tune_all(problem: Problem, rivals: list[str], budget: int, store: Store) -> None:
    for rival in rivals:
        if rival in TUNABLE:
            setting, until = tune(problem, rival, make_racer(problem, rival), budget, store)
            typer.echo(f"{time.strftime('%H:%M:%S')} ({problem.letter}) {rival}: {setting}, {until:,} gradients")


def main(
    problems: Annotated[list[str] | None, typer.Argument(help="a, b, b', c, d, e, f; all by default.")] = None,
    seeds: Annotated[int, typer.Option(help="Seeds of isvi's default.")] = 5,
    rival_seeds: Annotated[int, typer.Option(help="Seeds of the rivals.")] = 3,
    rivals: Annotated[str, typer.Option(help="Comma-separated; all by default.")] = ",".join(ALL),
    quick: Annotated[bool, typer.Option(help="One seed and a tenth of the budgets.")] = False,
    tune_only: Annotated[bool, typer.Option(help="Only choose the rivals' learning rates.")] = False,
    again: Annotated[bool, typer.Option(help="Forget these rivals' finished runs on these problems first.")] = False,
    report_only: Annotated[bool, typer.Option(help="Only write the report and the figure anew.")] = False,
    out: Annotated[Path | None, typer.Option(help="Where to write; benchmarks/results by default.")] = None,
) -> None:
    """Race isvi's default against tuned rivals."""
    letters = problems or list(PROBLEMS)
    chosen = [name.strip() for name in rivals.split(",") if name.strip()]
    for names, known in ((letters, list(PROBLEMS)), (chosen, ALL)):
        unknown = sorted(set(names) - set(known))
        if unknown:
            raise typer.BadParameter(f"{unknown} are not known; choose from {', '.join(known)}.")
    store = Store(out or Path("benchmark-output" if quick else Path(__file__).parent / "results"))
    if again:
        store.forget(letters, chosen)
    for letter in [] if report_only else letters:
        problem, budget = PROBLEMS[letter](), BUDGETS.get(letter, BUDGET) // (10 if quick else 1)
        present = without_the_absent(problem, chosen)
        if tune_only:
            tune_all(problem, present, budget, store)
            continue
        race(problem, present, 1 if quick else seeds, 1 if quick else rival_seeds, budget, store)
        conclude(store)
    if report_only:
        conclude(store)


def conclude(store: Store) -> None:
    write_report(store, os.cpu_count() or 1)
    draw(store)


if __name__ == "__main__":
    typer.run(main)
