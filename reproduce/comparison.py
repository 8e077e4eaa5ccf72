"""SGD against I-SGD on one problem: tune, then run with five seeds, once with one rate and once with both tuned."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import isvi
from reproduce.problems import Problem
from reproduce.runs import Curve, Prices, Runner, Setting, Spread, best_of, step_prices, steps_per_record

LEVELS = (10.0, 1.0, 0.1, 0.01)
"""Gaps, in nats per latent."""
ROUGH, PRECISE = 0.1, 0.01
SGD, ISGD = "SGD", "I-SGD"
ONE_RATE, BOTH_TUNED, AUTHORS = "one rate", "both tuned", "authors' setting"
Row = dict[str, Any]


@dataclass(frozen=True)
class Plan:
    """How much work a comparison may take.

    Attributes:
        records: records per run, for SGD and for I-SGD.
        seeds: number of runs per method and setting.
        t: I-SGD's probability of reuse.
    """

    settings: Sequence[Setting]
    records: tuple[int, int]
    seeds: int
    checkpoints: int
    authors: Setting | None = None
    t: float = 0.9


@dataclass
class Comparison:
    """Everything measured about one problem. Gaps are measured from the ELBO ``best``."""

    problem: Problem
    plan: Plan
    best: float
    prices: Prices
    sweeps: dict[str, list[Curve]]
    choice: dict[tuple[str, float, str], Setting]
    runs: dict[tuple[str, Setting], list[Curve]]

    def setting(self, comparison: str, level: float, method: str) -> Setting:
        return self.choice[comparison, max(min(level, ROUGH), PRECISE), method]

    def curves(self, comparison: str, level: float, method: str) -> list[Curve]:
        return self.runs[method, self.setting(comparison, level, method)]

    def costs(self, comparison: str, level: float, method: str, cost: str) -> Spread:
        goal = self.best - level * self.problem.latents
        return Spread.of([curve.until(goal)[cost] for curve in self.curves(comparison, level, method)])

    @property
    def names(self) -> list[str]:
        return [AUTHORS, ONE_RATE, BOTH_TUNED] if self.plan.authors else [ONE_RATE, BOTH_TUNED]

    def speedup(self, comparison: str, level: float, cost: str) -> tuple[float, str]:
        """Ratio of medians and its text; a lower bound where SGD did not arrive, NaN where I-SGD did not."""
        slow, fast = (self.costs(comparison, level, method, cost).median for method in (SGD, ISGD))
        if math.isinf(fast):
            return math.nan, "neither" if math.isinf(slow) else "I-SGD did not arrive"
        if math.isinf(slow):
            spent = np.median([getattr(curve, cost)[-1] for curve in self.curves(comparison, level, SGD)])
            return float(spent) / fast, f"> {spent / fast:.1f}x"
        return slow / fast, f"{slow / fast:.1f}x"


def compare(problem: Problem, estimator: Any, plan: Plan) -> Comparison:
    """Tune both methods on one seed, choose settings, and run the chosen ones with all seeds."""
    runners = {SGD: Runner(problem, estimator, isvi.SGD()), ISGD: Runner(problem, estimator, isvi.ISGD(plan.t))}
    records = dict(zip(runners, plan.records, strict=True))
    per_record = estimator.num_samples
    sweeps = {
        method: runner.sweep(
            plan.settings,
            0,
            records[method] * per_record,
            counts(plan.t if method == ISGD else 0.0, records[method]),
            plan.checkpoints,
        )
        for method, runner in runners.items()
    }
    best = (
        problem.best if problem.best is not None else highest(curve for curves in sweeps.values() for curve in curves)
    )
    prices = step_prices(problem, estimator, plan.t)
    comparison = Comparison(problem, plan, best, prices, sweeps, choose(problem, plan, sweeps, best), {})
    for method, runner in runners.items():
        chosen = sorted({setting for (_, _, m), setting in comparison.choice.items() if m == method})
        t, budget = (plan.t if method == ISGD else 0.0), records[method] * per_record
        for seed in range(plan.seeds):
            steps = counts(t, records[method], seed)
            curves = runner.sweep(chosen, seed, budget, steps, plan.checkpoints)
            for setting, curve in zip(chosen, curves, strict=True):
                comparison.runs.setdefault((method, setting), []).append(curve.priced(comparison.prices, per_record))
    if problem.best is None:
        comparison.best = max(best, highest(curve for curves in comparison.runs.values() for curve in curves))
    return comparison


def counts(t: float, records: int, seed: int = 0) -> np.ndarray:
    return steps_per_record(t, records, seed) if t > 0 else np.ones(records, int)


def highest(curves: Iterable[Curve]) -> float:
    return max(float(np.nanmax(curve.elbo)) for curve in curves)


def choose(
    problem: Problem, plan: Plan, sweeps: dict[str, list[Curve]], best: float
) -> dict[tuple[str, float, str], Setting]:
    choice = {}
    for level in (ROUGH, PRECISE):
        own = {m: best_of(plan.settings, sweeps[m], best - level * problem.latents) for m in sweeps}
        for method in sweeps:
            choice[ONE_RATE, level, method] = own[SGD]
            choice[BOTH_TUNED, level, method] = own[method]
            if plan.authors is not None:
                choice[AUTHORS, level, method] = plan.authors
    return choice


def sweep_rows(comparison: Comparison) -> list[Row]:
    """One row per method and setting of the grid."""
    problem, best = comparison.problem, comparison.best
    return [
        {
            "method": method,
            "rate": float(setting.rate),
            "decay_every": float(setting.every),
            **{f"gradients_to_{level:g}": curve.until(best - level * problem.latents)["gradients"] for level in LEVELS},
            "gradients": int(curve.gradients[-1]),
            "gap_per_latent": float((best - curve.elbo[-1]) / problem.latents),
        }
        for method, curves in comparison.sweeps.items()
        for setting, curve in zip(comparison.plan.settings, curves, strict=True)
    ]


def run_rows(comparison: Comparison) -> list[Row]:
    """One row per checkpoint of every run."""
    return [
        {
            "method": method,
            "rate": float(setting.rate),
            "decay_every": float(setting.every),
            "seed": seed,
            "gradients": int(curve.gradients[i]),
            "steps": int(curve.steps[i]),
            "cpu_seconds": float(curve.cpu_seconds[i]),
            "elbo": f"{curve.elbo[i]:.3f}",
            "gap_per_latent": float((comparison.best - curve.elbo[i]) / comparison.problem.latents),
        }
        for (method, setting), curves in comparison.runs.items()
        for seed, curve in enumerate(curves)
        for i in range(len(curve.gradients))
    ]


def summary_rows(comparison: Comparison) -> list[Row]:
    """Costs to every gap: one row per comparison, gap and method."""
    rows: list[Row] = []
    for name in comparison.names:
        for level in LEVELS:
            for method in (SGD, ISGD):
                setting = comparison.setting(name, level, method)
                gradients, cpu = (comparison.costs(name, level, method, cost) for cost in ("gradients", "cpu_seconds"))
                row: Row = {"comparison": name, "gap_per_latent": level, "method": method, "setting": str(setting)}
                row |= {"reached": gradients.reached, "seeds": gradients.seeds}
                for label, spread in (("gradients", gradients), ("cpu_seconds", cpu)):
                    row |= {f"{label}_median": spread.median, f"{label}_low": spread.low, f"{label}_high": spread.high}
                speed = {cost: comparison.speedup(name, level, cost)[1] for cost in ("gradients", "cpu_seconds")}
                row |= {"speedup_gradients": speed["gradients"], "speedup_cpu": speed["cpu_seconds"]}
                rows.append(row)
    return rows
