"""Mixed models with simulated data: logistic, Poisson and linear, with one, two or three effects per group."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln
from jax.scipy.stats import norm

import isvi

SLOPES = 4
TAUS = (0.8, 0.5, 0.4)
"""Sds of the intercepts and of the slopes over groups."""
CORRELATION = 0.4
"""Between any two effects of a group."""
RATE = 0.5
"""Log of the mean count, of the Poisson models."""
NOISE = 0.7
"""Sd of a row, of the linear models."""


@dataclass(frozen=True)
class Problem:
    """A model, its data, and how its rows look at the effects.

    Attributes:
        kind: logistic, Poisson or linear.
        effects: per group: the intercept, and the first slopes.
        groups: how many.
    """

    kind: str
    effects: int
    groups: int

    @property
    def name(self) -> str:
        return f"{self.kind}, k = {self.effects}"

    def columns(self) -> dict[str, np.ndarray]:
        """Groups of 4 to 24 rows. The same for every run."""
        random = np.random.default_rng([self.effects, self.groups])
        group = np.repeat(np.arange(self.groups), random.integers(4, 25, self.groups))
        x = random.normal(size=(len(group), SLOPES))
        correlation = np.full((self.effects, self.effects), CORRELATION) + (1 - CORRELATION) * np.eye(self.effects)
        scale = np.asarray(TAUS[: self.effects])[:, None] * np.linalg.cholesky(correlation)
        u = random.normal(size=(self.groups, self.effects)) @ scale.T
        eta = (RATE if self.kind == "Poisson" else -0.5) + x @ np.array([0.5, -0.5, 0.25, 0.0])
        eta += np.sum(_design(x, self.effects, np) * u[group], axis=1)
        draw: Callable[[], np.ndarray] = {
            "logistic": lambda: (random.random(len(eta)) < 1 / (1 + np.exp(-eta))).astype(float),
            "Poisson": lambda: random.poisson(np.exp(np.minimum(eta, 8.0))).astype(float),
            "linear": lambda: eta + NOISE * random.normal(size=len(eta)),
        }[self.kind]
        return {"x": x, "y": draw(), "group": group}

    def model(self, nodes: int | None = None) -> isvi.Model:
        latents = {"a": isvi.real(), "b": isvi.real(SLOPES), "tau": isvi.positive(self.effects)}
        if self.effects > 1:
            latents["L"] = isvi.constrained(_corr_cholesky(), self.effects, self.effects)
        if self.kind == "linear":
            latents["sigma"] = isvi.positive()
        return isvi.Model(
            latents,
            self.log_prior,
            self.log_row,
            local={"u": isvi.real(self.effects)},
            log_local_prior=self.log_local_prior,
            nodes=nodes,
        )

    def log_prior(self, z: dict[str, Any]) -> jax.Array:
        """Normal and half-normal, of sd 2; flat over correlation matrices, but for the Jacobian of their factor."""
        total = norm.logpdf(z["a"], 0, 2) + norm.logpdf(z["b"], 0, 2).sum() + norm.logpdf(z["tau"], 0, 2).sum()
        if "sigma" in z:
            total += norm.logpdf(z["sigma"], 0, 2)
        if "L" in z:
            powers = np.arange(self.effects - 2, -1, -1)
            total += jnp.sum(powers * jnp.log(jnp.diagonal(z["L"])[1:]))
        return total

    def log_local_prior(self, z: dict[str, Any]) -> jax.Array:
        scaled = z["u"] / z["tau"]
        if "L" in z:
            scaled = jax.scipy.linalg.solve_triangular(z["L"], scaled, lower=True)
        determinant = jnp.sum(jnp.log(z["tau"])) + (jnp.sum(jnp.log(jnp.diagonal(z["L"]))) if "L" in z else 0.0)
        return norm.logpdf(scaled).sum() - determinant

    def log_row(self, z: dict[str, Any], row: dict[str, Any]) -> jax.Array:
        eta = z["a"] + row["x"] @ z["b"] + _design(row["x"], self.effects, jnp) @ z["u"]
        if self.kind == "logistic":
            return -jax.nn.softplus((1 - 2 * row["y"]) * eta)
        if self.kind == "Poisson":
            return row["y"] * eta - jnp.exp(eta) - gammaln(row["y"] + 1)
        return norm.logpdf(row["y"], eta, z["sigma"])

    @property
    def formula(self) -> str:
        """As R writes it."""
        slopes = " + ".join(["1", *(f"x{number + 1}" for number in range(self.effects - 1))])
        fixed = " + ".join(f"x{number + 1}" for number in range(SLOPES))
        return f"y ~ {fixed} + ({slopes} | group)"


def _corr_cholesky() -> Any:
    from numpyro.distributions import constraints

    return constraints.corr_cholesky


def _design(x: Any, effects: int, numbers: Any) -> Any:
    """What multiplies a group's effects: 1, and the first columns."""
    return numbers.concatenate([numbers.ones_like(x[..., :1]), x[..., : effects - 1]], axis=-1)
