"""A thousand to a million latents: the default, with nothing chosen, against tuned rivals.

``python -m benchmarks.many_latents run --problems hierarchical-10000,network-16702 --seeds 1`` adds rows to
``benchmarks/results/many_latents.csv``; ``... table`` writes the table beside it; ``... cost`` measures what a step
costs next to a bare pair of gradients.
"""

import argparse
import csv
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

import isvi
from benchmarks.many_certificate import collective_error
from benchmarks.many_problems import BATCH_SIZE, PROBLEMS, ManyProblem
from benchmarks.many_rivals import RIVALS, Found

RESULTS = Path(__file__).parent / "results"
COLUMNS = (
    "problem",
    "latents",
    "batches",
    "method",
    "seed",
    "gradients",
    "seconds",
    "elbo",
    "held_out",
    "collective",
    "note",
)
CERTIFIED = ("hierarchical", "sparse-normal")
"""Problems whose log joint is concave enough for collective errors to be told by a Newton step."""
ELBO_DRAWS = 20
"""The same noise for all methods, so that differences are far more certain than each value."""


def evaluated(problem: ManyProblem, found: Found) -> tuple[float, float]:
    """The ELBO over all rows, and the mean log density of a new one."""
    still: dict[str, Any] = {"algorithm": isvi.SGD(), "optimizer": optax.sgd(0.0), "budget": 1, "progress": False}
    fit = isvi.fit(problem.model, problem.data, batch_size=BATCH_SIZE, independent_rows=True, **still)
    params = problem.approximation.init(jnp.asarray(found.location), jnp.asarray(found.scale))
    elbo = replace(fit, params=params).elbo(ELBO_DRAWS).value
    return elbo, problem.held_out_density(found.location, found.scale)


def by_default(problem: ManyProblem, seed: int) -> dict[str, Any]:
    """A row of the results."""
    started = time.process_time()
    fit = isvi.fit(problem.model, problem.data, seed=seed, progress=False)
    seconds = time.process_time() - started
    q = fit.approximation
    found = Found(np.asarray(q.location(fit.params)), np.asarray(q.scale(fit.params)), seconds)
    row = _row(problem, "isvi", seed, fit.gradients, found, fit.status.kind)
    if "handed over" in fit.status.message:
        row["note"] += ", handed over"
    return row


def by_rival(problem: ManyProblem, name: str, gradients: int, seed: int) -> dict[str, Any]:
    """The best of its rates, by the ELBO; the seconds are those of one."""
    run, rates = RIVALS[name]
    tried = {rate: run(problem, gradients, rate, seed) for rate in rates}
    elbos = {rate: evaluated(problem, found)[0] if found.finite else -np.inf for rate, found in tried.items()}
    best = max(elbos, key=lambda rate: elbos[rate])
    return _row(problem, name, seed, gradients, tried[best], f"rate {best}")


def _row(problem: ManyProblem, method: str, seed: int, gradients: int, found: Found, note: str) -> dict[str, Any]:
    elbo, held_out = evaluated(problem, found) if found.finite else (np.nan, np.nan)
    # Hessians of networks are not positive along these directions, and a certificate means nothing there.
    known = found.finite and problem.name.startswith(CERTIFIED)
    off = round(collective_error(problem, found.location, found.scale), 3) if known else ""
    latents, batches = problem.approximation.dim, problem.num_batches
    values = (problem.name, latents, batches, method, seed, gradients, round(found.seconds, 1), round(elbo, 1))
    return dict(zip(COLUMNS, (*values, round(held_out, 4), off, note), strict=True))


def run(problems: list[str], methods: list[str], seeds: int) -> None:
    path = RESULTS / "many_latents.csv"
    new = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        if new:
            writer.writeheader()
        for name in problems:
            problem = PROBLEMS[name]()
            for seed in range(seeds):
                for method in methods:
                    ours = method == "isvi"
                    row = by_default(problem, seed) if ours else by_rival(problem, method, problem.budget, seed)
                    writer.writerow(row)
                    file.flush()


def table() -> str:
    """The results as Markdown, a line for each problem and method: medians over seeds."""
    with (RESULTS / "many_latents.csv").open() as file:
        rows = list(csv.DictReader(file))
    lines = [
        "| problem (latents, mini-batches) | method | seeds | gradients | CPU s | ELBO | new row | shared | note |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    keys = dict.fromkeys((row["problem"], row["latents"], row["batches"], row["method"]) for row in rows)
    for problem, latents, batches, method in keys:
        own = [row for row in rows if row["problem"] == problem and row["method"] == method]
        gradients, seconds, elbo, held_out = (
            float(np.median([float(row[column]) for row in own]))
            for column in ("gradients", "seconds", "elbo", "held_out")
        )
        worst = max((float(row["collective"]) for row in own if row["collective"]), default=None)
        notes = ", ".join(dict.fromkeys(row["note"] for row in own))
        lines.append(
            f"| {problem} ({int(latents):,}, {batches}) | {method} | {len(own)} | {gradients:,.0f} | {seconds:.1f} | "
            f"{elbo:,.0f} | {held_out:.4f} | {'' if worst is None else f'{worst:.2f}'} | {notes} |"
        )
    return "\n".join(lines)


def cost(names: list[str], records: int = 100) -> str:
    """What a record costs in the loop, in CPU milliseconds, next to a bare pair of gradients at normal draws."""
    from isvi.fitting.running.loop import make_run, make_start, own_copy
    from isvi.fitting.setup import Options, prepare

    lines = [
        "| problem | latents | bare pair, ms | in the loop, ms | ratio | state, bytes per latent | compiling, s |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name in names:
        problem = PROBLEMS[name]()
        setup = prepare(problem.model, problem.data, Options(independent_rows=True))
        start, dataset, method = setup.start(), setup.dataset, setup.method()

        def pairs(params: Any, dataset: Any, setup: Any = setup) -> Any:
            def one(total: Any, number: Any) -> tuple[Any, None]:
                key = jax.random.fold_in(jax.random.key(0), number)
                draws = setup.approximation.draw(key, params, 2, True)
                batch = dataset.batch(number % dataset.num_batches)
                return total + setup.target.values_and_gradients(draws, batch)[1].mean(axis=0), None

            return jax.lax.scan(one, jnp.zeros(setup.approximation.dim), jnp.arange(records))[0]

        compiled = jax.jit(pairs).lower(start, dataset).compile()
        bare = min(_timed(lambda: compiled(start, dataset)) for _ in range(3)) / records  # noqa: B023
        loop = own_copy(make_start(method, dataset, setup.run_key)(start))
        state = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(loop.state))
        began = time.perf_counter()
        advance = make_run(method, setup.run_key).lower(loop, dataset, jnp.int32(0)).compile(setup.effort)
        compiling = time.perf_counter() - began
        loop = jax.block_until_ready(advance(loop, dataset, jnp.int32(2 * 310)))  # the approach is over
        took = []
        for _ in range(3):
            until = jnp.int32(int(loop.state.gradients) + 2 * records)
            started = time.process_time()
            loop = jax.block_until_ready(advance(loop, dataset, until))
            took.append((time.process_time() - started) / records)
        dim, inside = setup.approximation.dim, min(took)
        cells = (f"{dim:,}", f"{1e3 * bare:.2f}", f"{1e3 * inside:.2f}", f"{inside / bare:.2f}")
        lines.append(f"| {name} | {' | '.join(cells)} | {state / dim:,.0f} | {compiling:.1f} |")
        print(lines[-1], flush=True)
    return "\n".join(lines)


def _timed(call: Any) -> float:
    started = time.process_time()
    jax.block_until_ready(call())
    return time.process_time() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("run", "table", "cost"))
    parser.add_argument("--problems", default=",".join(PROBLEMS))
    parser.add_argument("--methods", default="isvi,Adam,IVON")
    parser.add_argument("--seeds", type=int, default=3)
    chosen = parser.parse_args()
    if chosen.what == "run":
        run(chosen.problems.split(","), chosen.methods.split(","), chosen.seeds)
    else:
        print(table() if chosen.what == "table" else cost(chosen.problems.split(",")))


if __name__ == "__main__":
    main()
