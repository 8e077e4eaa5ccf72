"""Problems with a thousand to a million latents, simulated, each with rows held out.

Their names on the command line end in a size where there are several: ``hierarchical-10000``, ``network-100000``.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.nn import log_sigmoid, log_softmax
from jax.scipy.special import gammaln, logsumexp
from jax.scipy.stats import norm

import isvi

BATCH_SIZE = 1000
Rows = dict[str, np.ndarray]


@dataclass(frozen=True, eq=False)
class ManyProblem:
    """A model, its rows, and new rows.

    Attributes:
        density: ``density(z, rows)``, the log density of every row.
    """

    name: str
    latents: dict[str, Any]
    log_prior: Callable[[dict[str, Any]], Any]
    density: Callable[[dict[str, Any], Any], Any]
    data: Rows
    held_out: Rows

    @cached_property
    def model(self) -> isvi.Model:
        return isvi.Model(self.latents, self.log_prior, lambda z, rows: jnp.sum(self.density(z, rows)))

    @cached_property
    def approximation(self) -> isvi.Approximation:
        return isvi.approximate(isvi.MeanField(), self.model.latents)

    @property
    def num_batches(self) -> int:
        return -(-len(next(iter(self.data.values()))) // BATCH_SIZE)

    @property
    def budget(self) -> int:
        """The default of ``isvi.fit``: model gradients that every method may use."""
        return 2 * max(3000, 10 * self.num_batches)

    def held_out_density(self, location: np.ndarray, scale: np.ndarray, draws: int = 20) -> float:
        """The mean log density of a new row under the posterior predictive of independent Gaussians."""

        @jax.jit
        def at(z: Any) -> Any:
            return self.density(self.approximation.coordinates.decode(z)[0], self.held_out)

        random = np.random.default_rng(0)
        values = [at((location + scale * random.normal(size=len(location))).astype(np.float32)) for _ in range(draws)]
        return float(np.mean(logsumexp(jnp.stack(values), axis=0) - np.log(draws)))


def _split(rows: Rows, held_out: int) -> tuple[Rows, Rows]:
    return {name: a[:-held_out] for name, a in rows.items()}, {name: a[-held_out:] for name, a in rows.items()}


def hierarchical(groups: int, rows: int = 500_000) -> ManyProblem:
    """Logistic regression with an intercept, five slopes, and effects of groups (centred) with their scale."""
    random = np.random.default_rng(1)
    x = random.normal(size=(rows + 10_000, 5)).astype(np.float32)
    group = random.integers(0, groups, size=len(x)).astype(np.int32)
    effects = 0.8 * random.normal(size=groups)
    logits = 1.5 + x @ np.array([0.5, -0.3, 0.2, 0.0, 1.0]) + effects[group]
    y = (random.random(len(x)) < 1 / (1 + np.exp(-logits))).astype(np.float32)

    def log_prior(z: Any) -> Any:
        flat = norm.logpdf(z["intercept"], scale=5.0) + jnp.sum(norm.logpdf(z["slopes"], scale=2.0))
        return flat + norm.logpdf(z["tau"], scale=2.0) + jnp.sum(norm.logpdf(z["effects"], scale=z["tau"]))

    def density(z: Any, b: Any) -> Any:
        logits = z["intercept"] + b["x"] @ z["slopes"] + z["effects"][b["group"]]
        return log_sigmoid((2 * b["y"] - 1) * logits)

    latents = {
        "intercept": isvi.real(),
        "slopes": isvi.real(5),
        "tau": isvi.positive(),
        "effects": isvi.real(groups),
    }
    name = f"hierarchical-{groups}"
    return ManyProblem(name, latents, log_prior, density, *_split({"x": x, "group": group, "y": y}, 10_000))


def factorisation(users: int = 2500, items: int = 1000, factors: int = 10, rows: int = 300_000) -> ManyProblem:
    """Ratings as a mean plus a product of factors, with the noise unknown."""
    random = np.random.default_rng(2)
    user = random.integers(0, users, size=rows + 10_000).astype(np.int32)
    item = random.integers(0, items, size=rows + 10_000).astype(np.int32)
    u, v = random.normal(size=(users, factors)), random.normal(size=(items, factors)) * 0.5
    y = (3.0 + (u[user] * v[item]).sum(axis=1) + random.normal(size=len(user))).astype(np.float32)

    def log_prior(z: Any) -> Any:
        scales = norm.logpdf(z["mean"], scale=5.0) + norm.logpdf(z["noise"], scale=3.0)
        return scales + jnp.sum(norm.logpdf(z["users"])) + jnp.sum(norm.logpdf(z["items"]))

    def density(z: Any, b: Any) -> Any:
        fitted = z["mean"] + jnp.sum(z["users"][b["user"]] * z["items"][b["item"]], axis=1)
        return norm.logpdf(b["y"], fitted, z["noise"])

    latents = {
        "mean": isvi.real(),
        "noise": isvi.positive(),
        "users": isvi.real(users, factors),
        "items": isvi.real(items, factors),
    }
    return ManyProblem(
        "factorisation", latents, log_prior, density, *_split({"user": user, "item": item, "y": y}, 10_000)
    )


def network(hidden: int = 156, inputs: int = 96, rows: int = 60_000, name: str = "network-16702") -> ManyProblem:
    """A classifier of ten classes with one hidden layer, of data from such a network with 20 hidden units."""
    random = np.random.default_rng(3)
    x = random.normal(size=(rows + 10_000, inputs)).astype(np.float32)
    teacher = np.tanh(x @ random.normal(size=(inputs, 20)) / np.sqrt(inputs) * 2)
    scores = teacher @ random.normal(size=(20, 10)) * 3 + random.gumbel(size=(len(x), 10))
    y = scores.argmax(axis=1).astype(np.int32)

    def log_prior(z: Any) -> Any:
        parts = [jnp.sum(norm.logpdf(z[one])) for one in ("b1", "b2")]
        parts += [jnp.sum(norm.logpdf(z["w1"], scale=inputs**-0.5)), jnp.sum(norm.logpdf(z["w2"], scale=1.0))]
        return sum(parts)

    def density(z: Any, b: Any) -> Any:
        scores = jnp.tanh(b["x"] @ z["w1"] + z["b1"]) @ z["w2"] + z["b2"]
        return jnp.take_along_axis(log_softmax(scores), b["y"][:, None], axis=1)[:, 0]

    latents = {
        "w1": isvi.real(inputs, hidden),
        "b1": isvi.real(hidden),
        "w2": isvi.real(hidden, 10),
        "b2": isvi.real(10),
    }
    return ManyProblem(name, latents, log_prior, density, *_split({"x": x, "y": y}, 10_000))


def _sparse_rows(features: int, rows: int) -> Rows:
    random = np.random.default_rng(4)
    x = (random.normal(size=(rows + 5_000, features)) * (random.random((rows + 5_000, features)) < 0.02)).astype(
        np.float32
    )
    weights = random.normal(size=features) * (random.random(features) < 0.1) * 2
    y = (random.random(len(x)) < 1 / (1 + np.exp(-x @ weights))).astype(np.float32)
    return {"x": x, "y": y}


def _logistic(z: Any, weights: Any, b: Any) -> Any:
    return log_sigmoid((2 * b["y"] - 1) * (z["intercept"] + b["x"] @ weights))


def sparse_normal(features: int = 5000, rows: int = 20_000) -> ManyProblem:
    """Logistic regression on sparse features with a normal prior."""

    def log_prior(z: Any) -> Any:
        return norm.logpdf(z["intercept"], scale=5.0) + jnp.sum(norm.logpdf(z["w"]))

    latents = {"intercept": isvi.real(), "w": isvi.real(features)}
    rows_of = _split(_sparse_rows(features, rows), 5_000)
    return ManyProblem("sparse-normal", latents, log_prior, lambda z, b: _logistic(z, z["w"], b), *rows_of)


def sparse_horseshoe(features: int = 5000, rows: int = 20_000) -> ManyProblem:
    """The same with a horseshoe: half-Cauchy scales, one for all and one for each feature."""

    def half_cauchy(value: Any, scale: float) -> Any:
        return -jnp.log1p((value / scale) ** 2)

    def log_prior(z: Any) -> Any:
        scales = half_cauchy(z["tau"], 0.1) + jnp.sum(half_cauchy(z["local"], 1.0))
        return norm.logpdf(z["intercept"], scale=5.0) + scales + jnp.sum(norm.logpdf(z["w"]))

    def density(z: Any, b: Any) -> Any:
        return _logistic(z, z["tau"] * z["local"] * z["w"], b)

    latents = {
        "intercept": isvi.real(),
        "tau": isvi.positive(),
        "local": isvi.positive(features),
        "w": isvi.real(features),
    }
    return ManyProblem("sparse-horseshoe", latents, log_prior, density, *_split(_sparse_rows(features, rows), 5_000))


def poisson_factors(users: int = 1000, items: int = 500, factors: int = 3, rows: int = 475_000) -> ManyProblem:
    """Counts with a rate that is a product of positive factors."""
    random = np.random.default_rng(5)
    user = random.integers(0, users, size=rows + 10_000).astype(np.int32)
    item = random.integers(0, items, size=rows + 10_000).astype(np.int32)
    u, v = random.gamma(0.5, 1.0, size=(users, factors)), random.gamma(0.5, 1.0, size=(items, factors))
    y = random.poisson((u[user] * v[item]).sum(axis=1)).astype(np.float32)

    def log_prior(z: Any) -> Any:
        return sum(jnp.sum(-0.5 * jnp.log(z[one]) - z[one]) for one in ("users", "items"))

    def density(z: Any, b: Any) -> Any:
        rate = jnp.sum(z["users"][b["user"]] * z["items"][b["item"]], axis=1) + 1e-6
        return b["y"] * jnp.log(rate) - rate - gammaln(b["y"] + 1)

    latents = {"users": isvi.positive(users, factors), "items": isvi.positive(items, factors)}
    return ManyProblem(
        "poisson-factors", latents, log_prior, density, *_split({"user": user, "item": item, "y": y}, 10_000)
    )


PROBLEMS: dict[str, Callable[[], ManyProblem]] = {
    "hierarchical-1000": lambda: hierarchical(1000),
    "hierarchical-10000": lambda: hierarchical(10_000),
    "hierarchical-50000": lambda: hierarchical(50_000),
    "hierarchical-200000": lambda: hierarchical(200_000, 2_000_000),
    "factorisation": factorisation,
    "network-16702": network,
    "network-100000": lambda: network(930, 96, name="network-100000"),
    "network-1000000": lambda: network(9300, 96, name="network-1000000"),
    "sparse-normal": sparse_normal,
    "sparse-horseshoe": sparse_horseshoe,
    "poisson-factors": poisson_factors,
}
