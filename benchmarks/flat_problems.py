"""Regressions with a nearly flat direction: an intercept against all groups or levels, a scale against all effects.

Made for measuring whether "converged" is true; none was used to choose anything in the method. Every problem knows
the best full-rank Gaussian, found in float64 from gradients of all rows, without isvi's own machinery.
"""

import hashlib
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.nn import softplus
from jax.scipy.special import gammaln
from jax.scipy.stats import norm, t
from scipy.linalg import hadamard

import isvi

CACHE = Path(os.environ.get("ISVI_BENCHMARK_CACHE", Path(tempfile.gettempdir()) / "isvi-benchmark"))
ROWS_AT_ONCE = 10_000
PRIOR_DESIGNS = 8
"""Sets of draws that the prior is averaged over; the likelihood, which is nearly a parabola, over one."""
MOST_STEPS = 150
DAMPING = 0.6
"""Of the reference's steps: mean and covariance follow each other, and would overshoot."""
LARGEST_CHANGE = 5.0
"""Of a variance along any direction, in one of its steps."""
NEGLIGIBLE = 0.002
"""A step, in standard deviations, and a change of any variance, relatively, after which it has arrived."""


class Gaussian(NamedTuple):
    """A full-rank Gaussian in unconstrained coordinates."""

    mean: np.ndarray
    covariance: np.ndarray

    @property
    def sd(self) -> np.ndarray:
        return np.sqrt(np.diagonal(self.covariance))

    @property
    def mean_field_sd(self) -> np.ndarray:
        """Of the closest Gaussian with independent entries."""
        return np.diagonal(np.linalg.inv(self.covariance)) ** -0.5


@dataclass(frozen=True, eq=False)
class FlatProblem:
    """A model and its data."""

    name: str
    model: isvi.Model
    data: dict[str, np.ndarray]
    designs: int = 1
    """Sets of draws that the reference averages the likelihood over: more than one where it is no parabola."""

    @cached_property
    def approximation(self) -> isvi.Approximation:
        return isvi.approximate(isvi.FullRank(), self.model.latents)

    @cached_property
    def best(self) -> Gaussian:
        """The best full-rank Gaussian; kept on disk, as it takes minutes where the latents are many."""
        digest = hashlib.sha256(self.name.encode())
        for column in self.data.values():
            digest.update(np.ascontiguousarray(column).data)
        path = CACHE / f"best-{self.name}-{digest.hexdigest()[:12]}.npz"
        if path.exists():
            with np.load(path) as found:
                return Gaussian(found["mean"], found["covariance"])
        best = best_gaussian(self)
        path.parent.mkdir(parents=True, exist_ok=True)
        np.savez(path, mean=best.mean, covariance=best.covariance)
        return best


def best_gaussian(problem: FlatProblem, start: isvi.Fit | None = None) -> Gaussian:
    """Where E_q[gradient] = 0 and E_q[-Hessian] is q's precision, by Newton's method on all rows.

    Only the start is isvi's, a fit of the problem. Expectations are over mirrored draws whose second moments are
    exactly the normal's: a scale and its effects correlate in a few random draws, and that would move them. By Stein's
    identity the same gradients give the Hessian's expectation.
    """
    fit = start or isvi.fit(problem.model, problem.data, family=isvi.FullRank(), progress=False)
    mean = np.asarray(fit.approximation.location(fit.params), np.float64)
    root = np.asarray(fit.approximation.factor(fit.params), np.float64)
    many, noise = _designs(len(mean), PRIOR_DESIGNS), _designs(len(mean), problem.designs)
    with jax.enable_x64(True):
        of_prior, of_rows = _gradients(problem)
        for _ in range(MOST_STEPS):
            found = [_expected(of_prior, mean, root, many), _expected(of_rows, mean, root, noise)]
            gradient, curvature = (np.sum(parts, axis=0) for parts in zip(*found, strict=True))
            values, vectors = np.linalg.eigh(root.T @ curvature @ root)
            side = root @ vectors * np.clip(values, 1 / LARGEST_CHANGE, LARGEST_CHANGE) ** (-DAMPING / 2)
            covariance = side @ side.T
            step, change = DAMPING * covariance @ gradient, np.abs(np.log(np.maximum(values, 1e-9))).max()
            mean, root = mean + step, np.linalg.cholesky(covariance)
            if max(np.abs(step / np.sqrt(np.diagonal(covariance))).max(), change) < NEGLIGIBLE:
                return Gaussian(mean, covariance)
    raise RuntimeError(f"{problem.name}: no fixed point after {MOST_STEPS} steps")


def _designs(dim: int, count: int) -> np.ndarray:
    """Several designs, at two distances from 0: so that fourth moments are a normal's too, but for chance."""
    near = 0.0 if count == 1 else np.sqrt(2 / dim)
    designs = [_design(dim, seed) * np.sqrt(1 + near * (-1) ** seed) for seed in range(count)]
    return np.concatenate(designs)


def _design(dim: int, seed: int) -> np.ndarray:
    """Points (pairs, dim) with mean square 1 along every direction: the columns of a Hadamard matrix, turned round."""
    pairs = 2 ** int(np.ceil(np.log2(dim + 1)))
    turned = np.linalg.qr(np.random.default_rng(seed).normal(size=(dim, dim)))[0]
    return hadamard(pairs)[:, 1 : dim + 1] @ turned


def _expected(
    gradient: Callable[[np.ndarray], np.ndarray], mean: np.ndarray, root: np.ndarray, noise: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Of the gradient, and of the negative Hessian: ``-E[g eps'] L^-1``."""
    up, down = gradient(mean + noise @ root.T), gradient(mean - noise @ root.T)
    curvature = np.linalg.solve(root.T, noise.T @ (down - up)) / (2 * len(noise))
    return (up + down).mean(axis=0) / 2, 0.5 * (curvature + curvature.T)


def _gradients(problem: FlatProblem) -> tuple[Callable[[np.ndarray], np.ndarray], Callable[[np.ndarray], np.ndarray]]:
    """Of the log prior and of the log likelihood of all rows, at many points."""
    target = isvi.Target(problem.model, problem.approximation.coordinates)
    rows = len(next(iter(problem.data.values())))
    parts = [
        {
            name: np.asarray(column[start : start + ROWS_AT_ONCE], np.float64 if column.dtype.kind == "f" else None)
            for name, column in problem.data.items()
        }
        for start in range(0, rows, ROWS_AT_ONCE)
    ]
    prior = jax.jit(jax.vmap(jax.grad(target.log_prior)))
    part_of = jax.jit(lambda points, part: jax.lax.map(lambda z: jax.grad(target.log_likelihood)(z, part), points))
    return (
        lambda points: np.asarray(prior(points)),
        lambda points: np.sum([np.asarray(part_of(points, part)) for part in parts], axis=0),
    )


def _bernoulli(y: Any, logits: Any) -> Any:
    return jnp.sum(y * logits - softplus(logits))


def _rows(rng: np.random.Generator, rows: int, columns: int) -> np.ndarray:
    return rng.normal(size=(rows, columns)).astype(np.float32)


def _skewed_levels(rng: np.random.Generator, rows: int, levels: int, rarest: int) -> np.ndarray:
    """Level sizes that fall geometrically, from common ones down to ``rarest`` rows."""
    sizes = np.geomspace(rows, rarest, levels)
    sizes = np.maximum(np.round(sizes * (rows / sizes.sum())), rarest).astype(int)
    sizes[0] += rows - sizes.sum()
    return rng.permutation(np.repeat(np.arange(levels), sizes)).astype(np.int32)


def grouped_logistic(seed: int = 0, rows: int = 200_000, groups: int = 500) -> FlatProblem:
    """Logistic regression, eight slopes, an effect per group, non-centred."""
    rng = np.random.default_rng(seed)
    x, group = _rows(rng, rows, 8), rng.integers(groups, size=rows).astype(np.int32)
    logits = -1.0 + x @ rng.normal(0, 0.4, 8) + 0.8 * rng.normal(size=groups)[group]
    y = (rng.random(rows) < 1 / (1 + np.exp(-logits))).astype(np.float32)
    model = isvi.Model(
        {"a": isvi.real(), "b": isvi.real(8), "tau": isvi.positive(), "u": isvi.real(groups)},
        lambda z: (
            norm.logpdf(z["a"], 0, 5)
            + norm.logpdf(z["b"], 0, 1).sum()
            + norm.logpdf(z["tau"], 0, 1)
            + norm.logpdf(z["u"]).sum()
        ),
        lambda z, r: _bernoulli(r["y"], z["a"] + r["x"] @ z["b"] + z["tau"] * z["u"][r["group"]]),
    )
    return FlatProblem("grouped-logistic", model, {"x": x, "group": group, "y": y})


def varying_slopes(seed: int = 0, rows: int = 200_000, groups: int = 300, centred: bool = False) -> FlatProblem:
    """Linear regression with an intercept and two slopes per group."""
    rng = np.random.default_rng(seed)
    x, group = _rows(rng, rows, 2), rng.integers(groups, size=rows).astype(np.int32)
    mean, spread = np.array([2.0, -0.5, 1.0]), np.array([1.0, 0.5, 0.2])
    effects = mean + spread * rng.normal(size=(groups, 3))
    y = effects[group, 0] + (x * effects[group, 1:]).sum(axis=1) + 1.5 * rng.normal(size=rows)

    def coefficients(z: dict) -> Any:
        return z["u"] if centred else z["mean"] + z["spread"] * z["u"]

    def log_prior(z: dict) -> Any:
        effects = norm.logpdf(z["u"], z["mean"], z["spread"]) if centred else norm.logpdf(z["u"])
        return (
            norm.logpdf(z["mean"], 0, 5).sum()
            + norm.logpdf(z["spread"], 0, 2).sum()
            + norm.logpdf(z["sigma"], 0, 5)
            + effects.sum()
        )

    def log_likelihood(z: dict, r: dict) -> Any:
        beta = coefficients(z)[r["group"]]
        return norm.logpdf(r["y"], beta[:, 0] + (r["x"] * beta[:, 1:]).sum(axis=1), z["sigma"]).sum()

    latents = {"mean": isvi.real(3), "spread": isvi.positive(3), "u": isvi.real(groups, 3), "sigma": isvi.positive()}
    name = "varying-slopes-centred" if centred else "varying-slopes"
    model = isvi.Model(latents, log_prior, log_likelihood)
    return FlatProblem(name, model, {"x": x, "group": group, "y": y.astype(np.float32)})


def one_hot_levels(seed: int = 0, rows: int = 300_000) -> FlatProblem:
    """Logistic regression: an intercept, four slopes and all sixteen levels of a category, some of 29 rows."""
    rng = np.random.default_rng(seed)
    x, level = _rows(rng, rows, 4), _skewed_levels(rng, rows, 16, 29)
    logits = 0.5 + x @ rng.normal(0, 0.5, 4) + rng.normal(0, 0.7, 16)[level]
    y = (rng.random(rows) < 1 / (1 + np.exp(-logits))).astype(np.float32)
    model = isvi.Model(
        {"a": isvi.real(), "b": isvi.real(4), "levels": isvi.real(16)},
        lambda z: norm.logpdf(z["a"], 0, 2) + norm.logpdf(z["b"], 0, 1).sum() + norm.logpdf(z["levels"], 0, 1).sum(),
        lambda z, r: _bernoulli(r["y"], z["a"] + r["x"] @ z["b"] + z["levels"][r["level"]]),
    )
    return FlatProblem("one-hot-levels", model, {"x": x, "level": level, "y": y})


def zero_inflated(seed: int = 0, rows: int = 200_000) -> FlatProblem:
    """Zero-inflated Poisson regression with forty levels."""
    rng = np.random.default_rng(seed)
    x, level = _rows(rng, rows, 4), _skewed_levels(rng, rows, 40, 30)
    rate = np.exp(0.3 + x @ rng.normal(0, 0.3, 4) + rng.normal(0, 0.5, 40)[level])
    zero = rng.random(rows) < 1 / (1 + np.exp(1.0 - x @ rng.normal(0, 0.5, 4)))
    y = np.where(zero, 0, rng.poisson(rate)).astype(np.float32)

    def log_likelihood(z: dict, r: dict) -> Any:
        eta = z["a"] + r["x"] @ z["b"] + z["levels"][r["level"]]
        logit = z["c"] + r["x"] @ z["d"]
        poisson = r["y"] * eta - jnp.exp(eta) - gammaln(r["y"] + 1) - softplus(logit)
        return jnp.sum(jnp.where(r["y"] == 0, jnp.logaddexp(-softplus(-logit), poisson), poisson))

    latents = {"a": isvi.real(), "b": isvi.real(4), "levels": isvi.real(40), "c": isvi.real(), "d": isvi.real(4)}
    model = isvi.Model(latents, lambda z: sum(norm.logpdf(value).sum() for value in z.values()), log_likelihood)
    return FlatProblem("zero-inflated", model, {"x": x, "level": level, "y": y})


def student_t(seed: int = 0, rows: int = 200_000) -> FlatProblem:
    """Regression with Student-t errors, sixty slopes of uneven scale, unknown degrees of freedom."""
    rng = np.random.default_rng(seed)
    x = (_rows(rng, rows, 60) * np.geomspace(0.1, 10, 60)).astype(np.float32)
    y = 1.0 + x @ (rng.normal(size=60) / np.geomspace(0.1, 10, 60)) + 2.0 * rng.standard_t(4, size=rows)
    model = isvi.Model(
        {"a": isvi.real(), "b": isvi.real(60), "sigma": isvi.positive(), "nu": isvi.positive()},
        lambda z: (
            norm.logpdf(z["a"], 0, 10)
            + norm.logpdf(z["b"], 0, 10).sum()
            + norm.logpdf(z["sigma"], 0, 5)
            + jnp.log(z["nu"])
            - 0.1 * z["nu"]
        ),
        lambda z, r: t.logpdf(r["y"], z["nu"], z["a"] + r["x"] @ z["b"], z["sigma"]).sum(),
    )
    return FlatProblem("student-t", model, {"x": x, "y": y.astype(np.float32)})


def negative_binomial(seed: int = 0, rows: int = 200_000) -> FlatProblem:
    """Negative binomial regression with thirty slopes."""
    rng = np.random.default_rng(seed)
    x = _rows(rng, rows, 30)
    rate = np.exp(1.0 + x @ rng.normal(0, 0.15, 30))
    y = rng.poisson(rate * rng.gamma(2.0, 0.5, size=rows)).astype(np.float32)

    def log_likelihood(z: dict, r: dict) -> Any:
        eta, k = z["a"] + r["x"] @ z["b"], z["k"]
        choose = gammaln(r["y"] + k) - gammaln(k) - gammaln(r["y"] + 1)
        return jnp.sum(choose + k * jnp.log(k) + r["y"] * eta - (r["y"] + k) * jnp.logaddexp(jnp.log(k), eta))

    model = isvi.Model(
        {"a": isvi.real(), "b": isvi.real(30), "k": isvi.positive()},
        lambda z: norm.logpdf(z["a"], 0, 3) + norm.logpdf(z["b"]).sum() + norm.logpdf(z["k"], 0, 5),
        log_likelihood,
    )
    return FlatProblem("negative-binomial", model, {"x": x, "y": y})


def ordinal(seed: int = 0, rows: int = 200_000) -> FlatProblem:
    """Ordinal regression: five classes, twenty-three slopes."""
    rng = np.random.default_rng(seed)
    x = _rows(rng, rows, 23)
    latent = x @ rng.normal(0, 0.4, 23) + rng.logistic(size=rows)
    y = np.digitize(latent, [-2.0, -0.5, 0.7, 2.5]).astype(np.int32)

    def log_likelihood(z: dict, r: dict) -> Any:
        eta = r["x"] @ z["b"]
        cuts = jnp.concatenate([jnp.array([-30.0], eta.dtype), z["cuts"], jnp.array([30.0], eta.dtype)])
        upper, lower = cuts[r["y"] + 1] - eta, cuts[r["y"]] - eta
        # log(sigmoid(u) - sigmoid(l)), without cancellation
        gap = jnp.log(-jnp.expm1(lower - upper))
        return jnp.sum(-softplus(-upper) - softplus(lower) + gap)

    model = isvi.Model(
        {"b": isvi.real(23), "cuts": isvi.ordered(4)},
        lambda z: norm.logpdf(z["b"]).sum() + norm.logpdf(z["cuts"], 0, 3).sum(),
        log_likelihood,
    )
    return FlatProblem("ordinal", model, {"x": x, "y": y})


PROBLEMS: dict[str, Callable[[], FlatProblem]] = {
    "one-hot-levels": one_hot_levels,
    "zero-inflated": zero_inflated,
    "student-t": student_t,
    "negative-binomial": negative_binomial,
    "ordinal": ordinal,
    "grouped-logistic": grouped_logistic,
    "varying-slopes": varying_slopes,
    "varying-slopes-centred": lambda: varying_slopes(centred=True),
}
