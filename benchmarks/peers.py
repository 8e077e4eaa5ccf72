"""``python -m benchmarks.peers``: the default of ``isvi.fit``, with nothing tuned, against tuned rivals of full rank.

Writes ``peers.md``, ``peers.csv``, ``tuning.csv`` and ``peers.png``/``.svg``. Finished runs are kept in the CSV: a
second call goes on where the first one ended.
"""

import math
import os
import time
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.figure import draw
from benchmarks.full_batch import run_laplace, run_pathfinder
from benchmarks.measure import Run
from benchmarks.problem import Problem
from benchmarks.problems import FINER, PROBLEMS
from benchmarks.report import DEFAULT, collect, write_report
from benchmarks.rivals import STOCHASTIC, Racer, run_default
from benchmarks.store import Store
from benchmarks.tuning import tune

TIMES = 50
"""A rival may use so many times the gradients that isvi's default needs to 0.01 nat per latent."""
BUDGET = 30_000
"""Of rivals, where isvi's default did not get there."""
FULL_BATCH = {"L-BFGS + Laplace": run_laplace, "Pathfinder": run_pathfinder}
ALL = [DEFAULT, *FULL_BATCH, *STOCHASTIC]


def race(problem: Problem, rivals: list[str], seeds: int, rival_seeds: int, quick: bool, store: Store) -> None:
    """All runs on one problem that are not in the store yet; isvi's first, as they set the rivals' budget."""
    for rival in sorted(rivals, key=ALL.index):
        wanted = range(seeds if rival == DEFAULT else rival_seeds)
        missing = [seed for seed in wanted if not store.has(problem.letter, rival, seed)]
        budget = 0 if rival == DEFAULT else rivals_budget(problem, store) // (10 if quick else 1)
        if rival in STOCHASTIC and missing:
            racer = Racer(problem, STOCHASTIC[rival](problem))
            setting, budget = tune(problem, rival, racer, budget, store)
        for seed in missing:
            if rival == DEFAULT:
                run = run_default(problem, seed)
            elif rival in STOCHASTIC:
                run = racer.run(setting, seed, budget)
            else:
                run = FULL_BATCH[rival](problem, seed, budget)
            _keep(store, problem, rival, seed, budget, run)


def rivals_budget(problem: Problem, store: Store) -> int:
    results = next((one for one in collect(store) if one.letter == problem.letter and DEFAULT in one.runs), None)
    needed = results.gradients(DEFAULT, 0.01).median if results else math.inf
    return TIMES * int(needed) if math.isfinite(needed) else BUDGET


def _keep(store: Store, problem: Problem, rival: str, seed: int, budget: int, run: Run) -> None:
    store.add(problem, rival, seed, budget, run)
    last = run.points[-1]
    typer.echo(
        f"{time.strftime('%H:%M:%S')} ({problem.letter}) {rival}, seed {seed}: {run.best_gap(problem):.4f} nats per "
        f"latent after {last.gradients:,} gradients, {last.time.wall:.2f} s, {last.time.cpu:.2f} CPU s; "
        f"mean off {last.judged.mean_off:.3f}, sds {last.judged.sd_low:.2f} - {last.judged.sd_high:.2f}; "
        f"{run.setting}; {run.status}"
    )


def main(
    problems: Annotated[list[str] | None, typer.Argument(help="a, b, b', d, e, f; d200, e200; all by default.")] = None,
    seeds: Annotated[int, typer.Option(help="Seeds of isvi's default.")] = 5,
    rival_seeds: Annotated[int, typer.Option(help="Seeds of the rivals.")] = 3,
    rivals: Annotated[str, typer.Option(help="Comma-separated; all by default.")] = ",".join(ALL),
    quick: Annotated[bool, typer.Option(help="One seed and a tenth of the budgets.")] = False,
    again: Annotated[bool, typer.Option(help="Forget these rivals' finished runs on these problems first.")] = False,
    report_only: Annotated[bool, typer.Option(help="Only write the report and the figure anew.")] = False,
    out: Annotated[Path | None, typer.Option(help="Where to write; benchmarks/results by default.")] = None,
) -> None:
    """Race isvi's default against tuned rivals."""
    everything = {**PROBLEMS, **FINER}
    letters = problems or list(everything)
    chosen = [name.strip() for name in rivals.split(",") if name.strip()]
    for names, known in ((letters, list(everything)), (chosen, ALL)):
        unknown = sorted(set(names) - set(known))
        if unknown:
            raise typer.BadParameter(f"{unknown} are not known; choose from {', '.join(known)}.")
    store = Store(out or Path("benchmark-output" if quick else Path(__file__).parent / "results"))
    if again:
        store.forget(letters, chosen)
    for letter in [] if report_only else letters:
        present = [rival for rival in chosen if letter in PROBLEMS or rival == DEFAULT]
        race(everything[letter](), present, 1 if quick else seeds, 1 if quick else rival_seeds, quick, store)
    write_report(store, os.cpu_count() or 1)
    draw(store)


if __name__ == "__main__":
    typer.run(main)
