"""Learning rates for the rivals: the best of five, constant or falling along a cosine; more where the best is the
largest or the smallest of them. The cosine also with standard deviations of 0.001 at the start, where ``isvi.fit``
starts, instead of NumPyro's 0.1. PyMC has no schedules: constant only.

One seed with a third of the budget. If a setting comes within 0.01 nat per latent there, shorter budgets are tried,
with cosines of their length, for as long as one does; the one that was first is kept as it is. Otherwise the setting
that comes closest is kept, its cosine stretched to the whole budget.
"""

import math
from typing import Protocol

from benchmarks.measure import Run, Setting
from benchmarks.problems import Problem
from benchmarks.store import Store

RATES = (0.003, 0.01, 0.03, 0.1, 0.3)
REUSE_RATES = (0.0003, 0.001, 0.003, 0.01, 0.03)
"""I-SGD takes ten steps where the others take one."""
FURTHER = 3.0
EXTENSIONS = 2
SHORTER = (3, 8, 20)
GOAL = 0.01
TUNING_SEED = 100

SAME_STEPS = {"BlackJAX meanfield_vi": "NumPyro SVI", "isvi SGD": "NumPyro SVI"}
"""These take the same steps up to their random numbers, and are tuned together."""

Outcome = tuple[Setting, float, float]
"""A setting, the gap at its end, and when 0.01 nat per latent was reached."""


class Tunable(Protocol):
    """What runs a rival with one setting after another."""

    @property
    def steps_per_gradient(self) -> int: ...

    def schedules(self, budget: int) -> list[tuple[float, float]]:
        """Horizons and standard deviations at the start that are worth trying."""
        ...

    def run(self, setting: Setting, seed: int, budget: int) -> Run: ...

    def sweep(self, settings: list[Setting], seed: int, budget: int) -> list[Run]: ...


def tune(problem: Problem, rival: str, racer: Tunable, budget: int, store: Store) -> tuple[Setting, int]:
    """The best setting, and the budget that goes with it. Kept in the store."""
    rival = SAME_STEPS.get(rival, rival)
    if (problem.letter, rival) not in store.tuning():
        for divisor in SHORTER:
            reduced = max(1, budget // divisor)
            outcomes = _sweep(problem, racer, reduced)
            store.add_tuning(problem.letter, rival, reduced, outcomes)
            if not (problem.exact and any(math.isfinite(reached) for _, _, reached in outcomes)):
                break
    rows = store.tuning()[problem.letter, rival]
    longest = max(int(row["budget"]) for row in rows)
    # Shorter budgets count only if they were enough.
    usable = [row for row in rows if int(row["budget"]) == longest or math.isfinite(float(row["reached_at"]))]
    winner = min(usable, key=lambda row: (float(row["reached_at"]), float(row["gap_per_latent"])))
    setting = Setting(*(float(winner[name]) for name in Setting._fields))
    cosine = math.isfinite(setting.horizon)
    if problem.exact and math.isfinite(float(winner["reached_at"])):
        return setting, int(winner["budget"]) if cosine else budget
    return setting._replace(horizon=float(budget) if cosine else math.inf), budget


def _sweep(problem: Problem, racer: Tunable, budget: int) -> list[Outcome]:
    """All five rates, and further ones while the best is at the edge."""
    rates = list(RATES if racer.steps_per_gradient == 1 else REUSE_RATES)
    outcomes = _try(problem, racer, rates, budget)
    for _ in range(EXTENSIONS):
        best = min(outcomes, key=lambda outcome: (outcome[2], outcome[1]))[0].rate
        if best not in (min(rates), max(rates)):
            break
        further = best * FURTHER if best == max(rates) else best / FURTHER
        rates.append(further)
        outcomes += _try(problem, racer, [further], budget)
    return outcomes


def _try(problem: Problem, racer: Tunable, rates: list[float], budget: int) -> list[Outcome]:
    settings = [Setting(rate, horizon, scale) for rate in rates for horizon, scale in racer.schedules(budget)]
    runs = racer.sweep(settings, TUNING_SEED, budget)
    # Without a known optimum, minus the ELBO at the end ranks as well as a gap does.
    best = problem.optimum[2] if problem.exact else 0.0
    return [(setting, *_outcome(run, best, problem.latents)) for setting, run in zip(settings, runs, strict=True)]


def _outcome(run: Run, best: float, latents: int) -> tuple[float, float]:
    gaps = [(best - point.elbo) / latents for point in run.points]
    gaps = [gap if math.isfinite(gap) else math.inf for gap in gaps]
    reached = (point.gradients for point, gap in zip(run.points, gaps, strict=True) if gap <= GOAL)
    return gaps[-1], next(reached, math.inf)
