"""PyMC's ADVI with mini-batches of its own, drawn with replacement, on linear and logistic regression."""

from typing import Any

import numpy as np

from benchmarks.measure import CHECKPOINTS, Point, Run, Time, checkpoint_counts
from benchmarks.problems import Problem
from isvi.datasets import LogisticRegression

RATES = (0.003, 0.01, 0.03, 0.1, 0.3)
TUNING_SHARE = 30


def run_pymc(problem: Problem, seed: int, budget: int) -> Run:
    """The best of five constant rates, by a short run each."""
    gaps = {rate: _run(problem, 100, budget // TUNING_SHARE, rate, 2).best_gap(problem) for rate in RATES}
    return _run(problem, seed, budget, min(gaps, key=lambda rate: gaps[rate]), CHECKPOINTS)


def _run(problem: Problem, seed: int, budget: int, rate: float, checkpoints: int) -> Run:
    import pymc as pm

    with build_model(problem):
        started = Time.now()
        inference = pm.ADVI(random_seed=seed)
        step = inference.objective.step_function(obj_n_mc=1, obj_optimizer=pm.adam(learning_rate=rate))
        step()
        compilation = Time.since(started)
        points, spent, done = [], Time(), 1
        for until in checkpoint_counts(budget, checkpoints):
            started = Time.now()
            for _ in range(until - done):
                step()
            spent, done = spent.plus(Time.since(started)), until
            points.append(Point(until, spent, problem.evaluate(*_parameters(inference.approx, problem))))
    return Run(points, compilation, f"rate {rate:g}, constant", "budget")


def build_model(problem: Problem) -> Any:
    """The same model in PyMC, with the same maps to unconstrained space."""
    import pymc as pm
    from pymc.distributions import transforms

    data, rows = problem.data, len(problem.data["y"])
    with pm.Model() as model:
        x, y = pm.Minibatch(data["x"], data["y"], batch_size=problem.batch_size)
        if problem.letter == "b":
            w = pm.Normal("w", 0.0, 1.0, shape=data["x"].shape[1])
            precision = pm.Gamma("precision", 1e-3, 1e-3, default_transform=transforms.log_exp_m1)
            pm.Normal("y", x @ w, tau=precision, observed=y, total_size=rows)
        else:
            w = pm.Normal("w", 0.0, LogisticRegression.prior_sd, shape=data["x"].shape[1])
            pm.Bernoulli("y", logit_p=x @ w, observed=y, total_size=rows)
    return model


def _parameters(approximation: Any, problem: Problem) -> tuple[np.ndarray, np.ndarray]:
    """Location and log scale, in the order of this library's approximation."""
    mean, sd = (np.asarray(part.eval(), np.float64) for part in (approximation.mean, approximation.std))
    where = {name.split("_")[0]: place for name, (_, place, *_) in approximation.ordering.items()}
    names = [entry.name for entry in problem.approximation.coordinates.entries]
    order = np.concatenate([np.arange(len(mean))[where[name]] for name in names])
    return mean[order], np.log(sd[order])
