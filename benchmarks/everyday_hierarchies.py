"""Effects of groups as people have them: frailties, crossed factors, random walks, with their scales.

As :mod:`benchmarks.everyday_regressions`: not used to choose anything in the method when it was written down.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.nn import log_sigmoid
from jax.scipy.stats import norm

import isvi
from benchmarks.flat_problems import FlatProblem


def frailties(seed: int = 0, rows: int = 60_000, groups: int = 60, centred: bool = True) -> FlatProblem:
    """Weibull survival with censoring and a frailty for every group."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, 4)).astype(np.float32)
    group = rng.integers(groups, size=rows).astype(np.int32)
    eta = -4.0 + x @ [0.5, -0.3, 0.2, 0.0] + 0.6 * rng.normal(size=groups)[group]
    time = (rng.exponential(size=rows) / np.exp(eta)) ** (1 / 1.4)
    end = rng.uniform(2, 30, rows)
    data = {
        "x": x,
        "group": group,
        "time": np.minimum(time, end).astype(np.float32),
        "event": (time < end).astype(np.float32),
    }

    def log_prior(z: dict) -> Any:
        effects = norm.logpdf(z["u"], 0, z["tau"] if centred else 1.0).sum()
        slopes = norm.logpdf(z["b"], 0, 2).sum() + norm.logpdf(z["a"], 0, 10)
        return effects + slopes + norm.logpdf(z["tau"]) + norm.logpdf(z["k"], 0, 3)

    def log_likelihood(z: dict, r: dict) -> Any:
        effects = z["u"] if centred else z["tau"] * z["u"]
        eta = z["a"] + r["x"] @ z["b"] + effects[r["group"]]
        log_time = jnp.log(r["time"])
        return jnp.sum(
            r["event"] * (jnp.log(z["k"]) + (z["k"] - 1) * log_time + eta) - jnp.exp(z["k"] * log_time + eta)
        )

    latents = {
        "a": isvi.real(),
        "b": isvi.real(4),
        "k": isvi.positive(),
        "tau": isvi.positive(),
        "u": isvi.real(groups),
    }
    name = "frailties-centred" if centred else "frailties"
    return FlatProblem(name, isvi.Model(latents, log_prior, log_likelihood), data)


def crossed(seed: int = 0, rows: int = 100_000, centred: bool = True) -> FlatProblem:
    """Logistic regression with two crossed factors of forty and twenty-five levels, and their scales."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, 3)).astype(np.float32)
    person, item = rng.integers(40, size=rows).astype(np.int32), rng.integers(25, size=rows).astype(np.int32)
    logits = 0.7 + x @ [0.4, -0.4, 0.0] + 0.8 * rng.normal(size=40)[person] + 0.4 * rng.normal(size=25)[item]
    y = (rng.random(rows) < 1 / (1 + np.exp(-logits))).astype(np.float32)

    def log_prior(z: dict) -> Any:
        effects = norm.logpdf(z["u"], 0, z["su"] if centred else 1.0).sum()
        effects += norm.logpdf(z["v"], 0, z["sv"] if centred else 1.0).sum()
        return (
            effects
            + norm.logpdf(z["a"], 0, 5)
            + norm.logpdf(z["b"]).sum()
            + norm.logpdf(z["su"])
            + norm.logpdf(z["sv"])
        )

    def log_likelihood(z: dict, r: dict) -> Any:
        su, sv = (1.0, 1.0) if centred else (z["su"], z["sv"])
        eta = z["a"] + r["x"] @ z["b"] + su * z["u"][r["person"]] + sv * z["v"][r["item"]]
        return jnp.sum(log_sigmoid((2 * r["y"] - 1) * eta))

    latents = {
        "a": isvi.real(),
        "b": isvi.real(3),
        "su": isvi.positive(),
        "sv": isvi.positive(),
        "u": isvi.real(40),
        "v": isvi.real(25),
    }
    data = {"x": x, "person": person, "item": item, "y": y}
    return FlatProblem(
        "crossed-centred" if centred else "crossed", isvi.Model(latents, log_prior, log_likelihood), data
    )


def random_walk(seed: int = 0, rows: int = 100_000, centred: bool = True) -> FlatProblem:
    """Counts over fifty weeks: an intercept and a random walk whose steps have an unknown size."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, 2)).astype(np.float32)
    week = rng.integers(50, size=rows).astype(np.int32)
    walk = np.cumsum(0.15 * rng.normal(size=50))
    y = rng.poisson(np.exp(0.5 + x @ [0.2, -0.1] + walk[week])).astype(np.float32)

    def log_prior(z: dict) -> Any:
        steps = jnp.diff(z["u"], prepend=0.0) if centred else z["u"]
        size = z["size"] if centred else 1.0
        level = norm.logpdf(z["a"], 0, 5) + norm.logpdf(z["b"]).sum() + norm.logpdf(z["size"], 0, 0.5)
        return norm.logpdf(steps, 0, size).sum() + level

    def log_likelihood(z: dict, r: dict) -> Any:
        walk = z["u"] if centred else z["size"] * jnp.cumsum(z["u"])
        eta = z["a"] + r["x"] @ z["b"] + walk[r["week"]]
        return jnp.sum(r["y"] * eta - jnp.exp(eta))

    latents = {"a": isvi.real(), "b": isvi.real(2), "size": isvi.positive(), "u": isvi.real(50)}
    name = "random-walk-centred" if centred else "random-walk"
    return FlatProblem(name, isvi.Model(latents, log_prior, log_likelihood), {"x": x, "week": week, "y": y})


PROBLEMS = {
    "frailties-centred": frailties,
    "frailties": lambda: frailties(centred=False),
    "crossed-centred": crossed,
    "crossed": lambda: crossed(centred=False),
    "random-walk-centred": random_walk,
    "random-walk": lambda: random_walk(centred=False),
}
