"""Learning rates for the rivals: the best of five, falling along a cosine, from standard deviations of 0.1 (NumPyro's)
or of 0.001 (where ``isvi.fit`` starts); more where the best is the largest or the smallest of them.

One seed with a third of the budget. If a setting comes within 0.01 nat per latent there, shorter budgets are tried,
with cosines of their length, for as long as one does; the one that was first is kept as it is. Otherwise the setting
that comes closest is kept, its cosine stretched to the whole budget.
"""

import math

from benchmarks.measure import Run, Setting
from benchmarks.problem import Problem
from benchmarks.rivals import Racer
from benchmarks.store import Store

RATES = (0.001, 0.003, 0.01, 0.03, 0.1)
FIRST_SDS = (0.1, 0.001)
FURTHER = 3.0
EXTENSIONS = 2
SHORTER = (3, 8, 20)
GOAL = 0.01
TUNING_SEED = 100

Outcome = tuple[Setting, float, float]
"""A setting, the gap at its end, and when 0.01 nat per latent was reached."""


def tune(problem: Problem, rival: str, racer: Racer, budget: int, store: Store) -> tuple[Setting, int]:
    """The best setting, and the budget that goes with it. Kept in the store."""
    if (problem.letter, rival) not in store.tuning():
        for divisor in SHORTER:
            reduced = max(1, budget // divisor)
            outcomes = _sweep(problem, racer, reduced)
            store.add_tuning(problem.letter, rival, reduced, outcomes)
            if not any(math.isfinite(reached) for _, _, reached in outcomes):
                break
    rows = store.tuning()[problem.letter, rival]
    longest = max(int(row["budget"]) for row in rows)
    # Shorter budgets count only if they were enough.
    usable = [row for row in rows if int(row["budget"]) == longest or math.isfinite(float(row["reached_at"]))]
    winner = min(usable, key=lambda row: (float(row["reached_at"]), float(row["gap_per_latent"])))
    setting = Setting(*(float(winner[name]) for name in Setting._fields))
    if math.isfinite(float(winner["reached_at"])):
        return setting, int(winner["budget"])
    return setting._replace(horizon=float(budget)), budget


def _sweep(problem: Problem, racer: Racer, budget: int) -> list[Outcome]:
    """All five rates, and further ones while the best is at the edge."""
    rates = list(RATES)
    outcomes = _try(problem, racer, rates, budget)
    for _ in range(EXTENSIONS):
        best = min(outcomes, key=lambda outcome: (outcome[2], outcome[1]))[0].rate
        if best not in (min(rates), max(rates)):
            break
        further = best * FURTHER if best == max(rates) else best / FURTHER
        rates.append(further)
        outcomes += _try(problem, racer, [further], budget)
    return outcomes


def _try(problem: Problem, racer: Racer, rates: list[float], budget: int) -> list[Outcome]:
    settings = [Setting(rate, float(budget), scale) for rate in rates for scale in FIRST_SDS]
    runs = racer.sweep(settings, TUNING_SEED, budget)
    return [(setting, *_outcome(run, problem)) for setting, run in zip(settings, runs, strict=True)]


def _outcome(run: Run, problem: Problem) -> tuple[float, float]:
    gaps = [(problem.optimum[1] - point.judged.elbo) / problem.latents for point in run.points]
    gaps = [gap if math.isfinite(gap) else math.inf for gap in gaps]
    reached = (point.gradients for point, gap in zip(run.points, gaps, strict=True) if gap <= GOAL)
    return gaps[-1], next(reached, math.inf)
