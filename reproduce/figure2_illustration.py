"""Figure 2: SGD's and I-SGD's paths to the posterior over the mean and precision of a univariate normal."""

from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.nn import softplus

import isvi
from reproduce.comparison import (
    AUTHORS,
    BOTH_TUNED,
    ISGD,
    ONE_RATE,
    SGD,
    Comparison,
    Plan,
    compare,
    run_rows,
    summary_rows,
)
from reproduce.plotting import BLUE, COLUMN, RED, panels, save
from reproduce.problems import Problem, diagonal_gaussian
from reproduce.results import Claim, Size, judge, write_claims, write_table
from reproduce.runs import Runner, Setting, batch_order, grid

GAP = 0.1
"""Nats per latent; what counts as having reached the optimum."""
SETTINGS = grid((0.3, 0.1, 0.03, 0.01), (np.inf, 100, 300))


def make_problem() -> Problem:
    return diagonal_gaussian(rows=100, dim=1, batch_size=50)


def far_start(problem: Problem) -> Any:
    """A start from which there is a way to go."""
    return problem.approximation.init(jnp.array([-1.0, 1.0]), jnp.full(2, 0.1))


def path(runner: Runner, setting: Setting, seed: int, steps: int) -> tuple[Any, np.ndarray]:
    """Variational parameters before every step, and whether the step evaluated the model."""
    problem = runner.problem
    order = batch_order(problem.dataset.num_batches, steps + 1, seed)

    @partial(jax.jit, static_argnums=1)
    def walk(state: isvi.State, length: int) -> Any:
        def one(state: isvi.State, _: None) -> Any:
            moved, info = runner.step(setting, jax.random.key(seed), state, problem.dataset, order)
            return moved, (state.params, info.fresh)

        return jax.lax.scan(one, state, length=length)[1]

    params, fresh = walk(runner.init(setting, far_start(problem), problem.dataset), steps)
    return jax.device_get(params), np.asarray(fresh)


def path_rows(problem: Problem, method: str, params: Any, fresh: np.ndarray) -> list[dict]:
    mean, precision = np.asarray(params.loc)[:, 0], np.asarray(softplus(params.loc[:, 1]))
    rows = []
    for step in range(len(fresh)):
        here = jax.tree.map(lambda leaf, step=step: leaf[step], params)
        gap = (problem.best - problem.evaluate(here)) / problem.latents
        point = {"mean": float(mean[step]), "precision": float(precision[step])}
        rows.append({"method": method, "step": step, "fresh": bool(fresh[step]), **point, "gap_per_latent": float(gap)})
    return rows


def cut(rows: list[dict]) -> list[dict]:
    """A path up to the optimum."""
    end = next((i for i, row in enumerate(rows) if row["gap_per_latent"] <= GAP), len(rows) - 1)
    return rows[: end + 1]


def draw(problem: Problem, paths: dict[str, list[dict]], out: Path) -> None:
    x = problem.data["x"][:, 0]
    spread = 1 / np.sqrt(len(x) * 1 / x.var())
    everything = [row for rows in paths.values() for row in rows]
    low = min(*(row["mean"] for row in everything), x.mean() - 3 * spread) - 0.2
    high = max(*(row["mean"] for row in everything), x.mean() + 2.5 * spread) + 0.2
    top = max(row["precision"] for row in everything)
    mean, log_precision = np.meshgrid(np.linspace(low, high, 200), np.linspace(np.log(0.02), np.log(1.15 * top), 200))
    precision = np.exp(log_precision)
    residual = ((x[:, None, None] - mean) ** 2).sum(axis=0)
    # Density of the precision's logarithm, which is what the axis shows.
    density = (len(x) / 2 + 1e-3) * log_precision - (residual / 2 + 1e-3) * precision - mean**2 / 2
    density -= density.max()
    figure, axes = panels(1, 1, COLUMN, 2.6)
    axis = axes[0, 0]
    levels = [-2000, -1000, -500, -200, -100, -50, -20, -9, -4, -1]
    axis.contour(mean, precision, density, levels=levels, colors="0.65", linewidths=0.5, linestyles="solid")
    for method, colour in ((SGD, BLUE), (ISGD, RED)):
        track = np.array([[row["mean"], row["precision"]] for row in paths[method]])
        evaluations = sum(row["fresh"] for row in paths[method])
        label = f"{method}: {len(track)} steps, {evaluations} model gradients"
        axis.plot(*track.T, "o-", color=colour, markersize=1.6, linewidth=0.5, label=label)
    fresh = np.array([[row["mean"], row["precision"]] for row in paths[ISGD] if row["fresh"]])
    axis.plot(
        *fresh.T, "D", color=RED, markersize=4, markeredgecolor="white", markeredgewidth=0.4, label="I-SGD, fresh"
    )
    axis.set(yscale="log", xlabel="mean", ylabel="precision")
    ticks = [tick for tick in (0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0) if tick <= 1.15 * top]
    axis.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    axis.minorticks_off()
    axis.legend(loc="lower center", bbox_to_anchor=(0.45, 1.0), fontsize=6.5)
    save(figure, out, "figure2_illustration")


def ratio(comparison: Comparison, name: str, cost: str) -> float:
    slow, fast = (comparison.costs(name, GAP, method, cost).median for method in (SGD, ISGD))
    return slow / fast


def run(size: Size, out: Path) -> list[Claim]:
    problem = make_problem()
    records = (1500, 400) if size == "toy" else (3000, 1000)
    plan = Plan(SETTINGS, records, 5, checkpoints=300, authors=Setting(0.05))
    comparison = compare(problem, isvi.Reparameterization(), plan)
    setting = comparison.choice[AUTHORS, GAP, SGD]
    algorithms = {SGD: isvi.SGD(), ISGD: isvi.ISGD(plan.t)}
    paths = {}
    for method, algorithm in algorithms.items():
        runner = Runner(problem, isvi.Reparameterization(), algorithm)
        paths[method] = cut(path_rows(problem, method, *path(runner, setting, seed=3, steps=600)))
    draw(problem, paths, out)
    write_table(out, "figure2_paths", paths[SGD] + paths[ISGD])
    write_table(out, "figure2_runs", run_rows(comparison))
    write_table(out, "figure2_summary", summary_rows(comparison))
    claims = [claim(comparison, name) for name in (AUTHORS, ONE_RATE, BOTH_TUNED)]
    write_claims(out, "figure2", claims)
    return claims


def claim(comparison: Comparison, name: str) -> Claim:
    steps, gradients, cpu = (ratio(comparison, name, cost) for cost in ("steps", "gradients", "cpu_seconds"))
    counted = "; ".join(
        f"{method} {comparison.costs(name, GAP, method, 'steps').text()} steps and "
        f"{comparison.costs(name, GAP, method, 'gradients').text()} model gradients"
        f" (rate {comparison.choice[name, GAP, method]})"
        for method in (SGD, ISGD)
    )
    why = {
        AUTHORS: "At a rate well below what SGD could use, ten steps on one record go ten times as far.",
        ONE_RATE: "The rate at which SGD is fastest moves q by a large part of its width in every step, and records do "
        "not survive that.",
        BOTH_TUNED: "A larger rate makes SGD itself need fewer steps, and reusing one mini-batch ten times acts much "
        "like one larger step.",
    }
    where = {AUTHORS: "at a rate of 0.05", ONE_RATE: "at the rate best for SGD", BOTH_TUNED: "with both tuned"}
    return Claim(
        "2",
        f"I-SGD reaches the optimum in as many steps as SGD, almost ten times faster, {where[name]}",
        "as many steps, ~10x faster",
        f"to a gap of {GAP} nat per latent: {counted}. SGD/I-SGD: {steps:.2f} in steps, {gradients:.1f} in model "
        f"gradients, {cpu:.2f} in CPU time",
        judge(gradients, holds=7, in_part=1.5),
        why[name],
    )
