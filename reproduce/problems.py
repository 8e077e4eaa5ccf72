"""The paper's models and data, each with an evaluator of its ELBO and, where it can be known, the optimum.

Where the paper is silent the settings are those of the authors' released notebooks.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jax.nn import log_sigmoid, softplus
from jax.scipy.special import digamma, gammaln, logsumexp
from jax.scipy.stats import gamma, norm, poisson
from jaxtyping import Array
from scipy.optimize import minimize

import isvi
from isvi import families

INITIAL_SCALE = 0.1
LOG_2PI = float(np.log(2 * np.pi))
Elbo = Callable[[Any], Array]


@dataclass(frozen=True, eq=False)
class Problem:
    """A model with data, and what is known about its best approximation.

    Attributes:
        elbo: the ELBO of variational parameters, from sufficient statistics where those exist; float64.
        best: the ELBO of the best approximation of this family; None where it is not known.
    """

    name: str
    model: isvi.Model
    data: dict[str, np.ndarray]
    batch_size: int
    elbo: Callable[["Problem", Any], Array]
    family: Any = isvi.MeanField()
    knows_best: bool = True

    @cached_property
    def dataset(self) -> isvi.Dataset:
        return isvi.Dataset.from_arrays(self.data, self.batch_size)

    @cached_property
    def approximation(self) -> isvi.Approximation:
        return isvi.approximate(self.family, self.model.latents)

    @cached_property
    def target(self) -> isvi.Target:
        return isvi.Target(self.model, self.approximation.coordinates)

    @property
    def latents(self) -> int:
        return self.approximation.dim

    def start(self, seed: int) -> Any:
        """Locations at standard normal draws (of the logarithm, where the family is over positive values)."""
        draws = np.random.default_rng(seed).normal(size=self.latents)
        for entry in self.approximation.coordinates.entries:
            if entry.constrained:
                draws[entry.start : entry.stop] = np.exp(draws[entry.start : entry.stop])
        location = jnp.asarray(draws, jnp.float32)
        return self.approximation.init(location, jnp.full(self.latents, INITIAL_SCALE, jnp.float32))

    @cached_property
    def _evaluator(self) -> Callable[[Any], Array]:
        return jax.jit(partial(self.elbo, self))

    def evaluate(self, params: Any) -> float:
        """The ELBO in nats."""
        with jax.enable_x64(True):
            return float(self._evaluator(jax.tree.map(_to_double, params)))

    @cached_property
    def best(self) -> Any:
        """The optimum, by L-BFGS on the exact ELBO in float64; None where it is not known."""
        return best_elbo(self) if self.knows_best else None


def _to_double(leaf: Any) -> np.ndarray:
    return np.asarray(leaf, np.float64)


def best_elbo(problem: Problem) -> float:
    """Maximise the exact ELBO. Each round measures locations in units of the round's standard deviations,
    which is what makes L-BFGS quick."""
    with jax.enable_x64(True):
        params = jax.tree.map(_to_double, problem.start(0))
        value = -np.inf
        for _ in range(20):
            params, new = _ascend(problem, params)
            if new - value < 1e-6:
                break
            value = new
    return new


def _ascend(problem: Problem, params: Any) -> tuple[Any, float]:
    flat, unravel = ravel_pytree(params)
    scales = ravel_pytree(_step_sizes(params))[0]

    @jax.jit
    def objective(moves: Array) -> tuple[Array, Array]:
        return jax.value_and_grad(lambda moves: -problem.elbo(problem, unravel(flat + scales * moves)))(moves)

    found = minimize(
        lambda moves: tuple(np.asarray(part, np.float64) for part in objective(moves)),
        np.zeros(flat.shape),
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": 2000, "maxfun": 4000, "ftol": 1e-15, "gtol": 1e-8, "maxcor": 30},
    )
    return unravel(flat + scales * found.x), -float(found.fun)


def _step_sizes(params: Any) -> Any:
    """Standard deviations for locations, ones for everything else."""
    if isinstance(params, tuple) and not hasattr(params, "_fields"):
        return tuple(_step_sizes(part) for part in params)
    ones = jax.tree.map(jnp.ones_like, params)
    return ones._replace(loc=jnp.exp(params.log_scale)) if hasattr(params, "log_scale") else ones


def gaussian_moments(function: Callable[[Array], Array], loc: Array, scale: Array) -> Array:
    """E[function(u)] for u ~ N(loc, scale^2), by 32-point Gauss-Hermite quadrature."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(32)
    values = function(loc[..., None] + scale[..., None] * nodes)
    return values @ (weights / weights.sum())


def softplus_gamma_terms(loc: Array, log_scale: Array, shape: float, rate: float) -> tuple[Array, Array, Array]:
    """For a precision softplus(u), u ~ N(loc, scale^2): its mean, the mean of its logarithm, and the ELBO's
    terms from a Gamma prior, the Jacobian and the entropy."""
    scale = jnp.exp(log_scale)
    mean = gaussian_moments(softplus, loc, scale)
    mean_log = gaussian_moments(lambda u: jnp.log(softplus(u)), loc, scale)
    jacobian = gaussian_moments(log_sigmoid, loc, scale)
    return mean, mean_log, gamma_prior_mean(mean, mean_log, shape, rate) + jacobian + gaussian_entropy(log_scale)


def gamma_prior_mean(mean: Array, mean_log: Array, shape: float, rate: float) -> Array:
    """E[log Gamma(tau; shape, rate)]."""
    return shape * np.log(rate) - gammaln(shape) + (shape - 1) * mean_log - rate * mean


def gaussian_entropy(log_scale: Array) -> Array:
    return log_scale + 0.5 * (LOG_2PI + 1)


def normal_prior_terms(loc: Array, log_scale: Array) -> Array:
    """E[log N(z; 0, 1)] plus the entropy of a Gaussian factor."""
    return -0.5 * (LOG_2PI + loc**2 + jnp.exp(2 * log_scale)) + gaussian_entropy(log_scale)


def gamma_moments(params: Any) -> tuple[Array, Array, Array]:
    """Mean, mean logarithm and entropy of Gamma factors."""
    concentration = jnp.exp(params.log_concentration)
    log_rate = params.log_concentration - params.log_mean
    mean_log = digamma(concentration) - log_rate
    entropy = concentration - log_rate + gammaln(concentration) + (1 - concentration) * digamma(concentration)
    return jnp.exp(params.log_mean), mean_log, entropy


# (a) and Figure 2: a Gaussian with unknown means and precisions.


def diagonal_gaussian(rows: int, dim: int, batch_size: int, shape: float = 1e-3, rate: float = 1e-3) -> Problem:
    """x = 5 randn + 2; standard normal prior on the means, Gamma on the precisions.

    The likelihood is written with the mini-batch's sums, the cheapest way there is to evaluate it: the costs
    of a fresh gradient, and so the time that reuse saves, are not exaggerated.
    """
    x = (5 * np.random.default_rng(1).normal(size=(rows, dim)) + 2).astype(np.float32)

    def log_prior(z: dict[str, Array]) -> Array:
        return jnp.sum(norm.logpdf(z["mean"])) + jnp.sum(gamma.logpdf(z["precision"], shape, scale=1 / rate))

    def log_likelihood(z: dict[str, Array], batch: dict[str, Array]) -> Array:
        x, ones = batch["x"], jnp.ones(batch["x"].shape[0])
        squares = ones @ (x * x) - 2 * z["mean"] * (ones @ x) + len(ones) * z["mean"] ** 2
        return 0.5 * jnp.sum(len(ones) * (jnp.log(z["precision"]) - LOG_2PI) - z["precision"] * squares)

    total, squared = x.sum(axis=0, dtype=np.float64), (x.astype(np.float64) ** 2).sum(axis=0)

    def elbo(problem: Problem, params: Any) -> Array:
        (mean, u), (log_sd, log_sd_u) = (jnp.split(part, 2) for part in params)
        precision, log_precision, terms = softplus_gamma_terms(u, log_sd_u, shape, rate)
        residual = squared - 2 * mean * total + rows * (mean**2 + jnp.exp(2 * log_sd))
        likelihood = 0.5 * (rows * (log_precision - LOG_2PI) - precision * residual)
        return jnp.sum(likelihood + terms + normal_prior_terms(mean, log_sd))

    latents = {"mean": isvi.real(dim), "precision": isvi.positive(dim)}
    return Problem("diagonal Gaussian", isvi.Model(latents, log_prior, log_likelihood), {"x": x}, batch_size, elbo)


# (b), (e), (f): linear regression.


def regression_model(dim: int, shape: float, rate: float) -> isvi.Model:
    def log_prior(z: dict[str, Array]) -> Array:
        return jnp.sum(norm.logpdf(z["w"])) + gamma.logpdf(z["precision"], shape, scale=1 / rate)

    def log_likelihood(z: dict[str, Array], batch: dict[str, Array]) -> Array:
        residuals = batch["y"] - batch["x"] @ z["w"]
        return 0.5 * (len(residuals) * (jnp.log(z["precision"]) - LOG_2PI) - z["precision"] * jnp.sum(residuals**2))

    return isvi.Model({"w": isvi.real(dim), "precision": isvi.positive()}, log_prior, log_likelihood)


def regression_data(rows: int, dim: int, spread: float) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(2)
    x = (spread * rng.normal(size=(rows, dim))).astype(np.float32)
    return {"x": x, "y": (x @ rng.normal(size=dim) + rng.normal(size=rows)).astype(np.float32)}


@dataclass(frozen=True, eq=False)
class Residuals:
    """Expected residual sum of squares of a linear regression, from sufficient statistics."""

    gram: np.ndarray
    cross: np.ndarray
    squared: float

    @classmethod
    def of(cls, data: dict[str, np.ndarray]) -> "Residuals":
        x, y = data["x"].astype(np.float64), data["y"].astype(np.float64)
        return cls(x.T @ x, x.T @ y, float(y @ y))

    def expected(self, mean: Array, log_sd: Array) -> Array:
        spread = jnp.exp(2 * log_sd) @ jnp.diagonal(self.gram)
        return self.squared - 2 * mean @ self.cross + mean @ (self.gram @ mean) + spread


def linear_regression(rows: int, dim: int, batch_size: int, shape: float = 1e-3, rate: float = 1e-3) -> Problem:
    """(b): x = 5 randn, weights standard normal, unit noise; a Gaussian approximation throughout."""
    data = regression_data(rows, dim, spread=5.0)
    residuals = Residuals.of(data)

    def elbo(problem: Problem, params: Any) -> Array:
        mean, log_sd = params.loc[:dim], params.log_scale[:dim]
        precision, log_precision, terms = softplus_gamma_terms(params.loc[dim], params.log_scale[dim], shape, rate)
        likelihood = 0.5 * (rows * (log_precision - LOG_2PI) - precision * residuals.expected(mean, log_sd))
        return likelihood + terms + jnp.sum(normal_prior_terms(mean, log_sd))

    return Problem("linear regression", regression_model(dim, shape, rate), data, batch_size, elbo)


def conjugate_regression(rows: int, dim: int, batch_size: int, shape: float = 1.0, rate: float = 1.0) -> Problem:
    """(e), (f): the approximation in the prior's families, Gaussian weights and a Gamma precision."""
    data = regression_data(rows, dim, spread=1.0)
    residuals = Residuals.of(data)

    def elbo(problem: Problem, params: Any) -> Array:
        weights, factor = params if hasattr(params[0], "loc") else params[::-1]
        precision, log_precision, entropy = (part[0] for part in gamma_moments(factor))
        expected = residuals.expected(weights.loc, weights.log_scale)
        likelihood = 0.5 * (rows * (log_precision - LOG_2PI) - precision * expected)
        terms = gamma_prior_mean(precision, log_precision, shape, rate) + entropy
        return likelihood + terms + jnp.sum(normal_prior_terms(weights.loc, weights.log_scale))

    family = {"w": isvi.MeanField(), "precision": families.Gamma()}
    model = regression_model(dim, shape, rate)
    return Problem("linear regression", model, data, batch_size, elbo, family=family)


# (c): a mixture of Gaussians.


def gaussian_mixture(
    rows: int, components: int, batch_size: int, shape: float = 1.0, rate: float = 1.0, draws: int = 4
) -> Problem:
    """Centres 5 randn with unit noise in two dimensions; a Gamma prior on the precisions, a symmetric Dirichlet on
    the weights. Its optimum is not known, and its ELBO is estimated from fixed antithetic draws.

    The authors' Gamma(1e-5, 1e-5) is flat over hundreds of nats of log precision. The approximation of an empty
    component then widens without end: its ELBO is bounded in theory only, and float32 underflows on the way.
    Gamma(1, 1) has none of this.
    """
    rng = np.random.default_rng(3)
    centres = 5 * rng.normal(size=(components, 2))
    x = (centres[rng.integers(components, size=rows)] + rng.normal(size=(rows, 2))).astype(np.float32)

    def log_prior(z: dict[str, Array]) -> Array:
        precisions = gamma.logpdf(z["precision"], shape, scale=1 / rate)
        return jnp.sum(norm.logpdf(z["mean"])) + jnp.sum(precisions) + gammaln(float(components))

    def log_likelihood(z: dict[str, Array], batch: dict[str, Array]) -> Array:
        x, mean, precision = batch["x"], z["mean"], z["precision"]
        # The square multiplied out: two small matrix products instead of an array of rows by components by two.
        squares = (x * x) @ precision.T - 2 * x @ (mean * precision).T + jnp.sum(mean**2 * precision, axis=-1)
        log_scale = jnp.log(z["weights"]) + 0.5 * jnp.sum(jnp.log(precision) - LOG_2PI, axis=-1)
        return jnp.sum(logsumexp(log_scale - 0.5 * squares, axis=-1))

    half = np.random.default_rng(4).normal(size=(draws, 5 * components - 1)).astype(np.float32)
    noise = np.concatenate([half, -half])

    def elbo(problem: Problem, params: Any) -> Array:
        z = (params.loc + jnp.exp(params.log_scale) * noise).astype(jnp.float32)
        return problem.target.exact_values(z, problem.dataset).mean() + jnp.sum(gaussian_entropy(params.log_scale))

    latents = {
        "mean": isvi.real(components, 2),
        "precision": isvi.positive(components, 2),
        "weights": isvi.simplex(components),
    }
    model = isvi.Model(latents, log_prior, log_likelihood)
    return Problem("Gaussian mixture", model, {"x": x}, batch_size, elbo, knows_best=False)


# (d): Poisson counts.


def poisson_counts(rows: int, batch_size: int, shape: float = 1.0, rate: float = 1.0) -> Problem:
    """Counts with one unknown rate, Gamma prior and Gamma approximation: the optimum is the posterior itself."""
    x = np.random.default_rng(5).poisson(3.0, size=rows).astype(np.float32)
    total, constant = float(x.sum(dtype=np.float64)), float(gammaln(jnp.asarray(x) + 1).sum())

    def log_prior(z: dict[str, Array]) -> Array:
        return gamma.logpdf(z["rate"], shape, scale=1 / rate)

    def log_likelihood(z: dict[str, Array], batch: dict[str, Array]) -> Array:
        return jnp.sum(poisson.logpmf(batch["x"], z["rate"]))

    def elbo(problem: Problem, params: Any) -> Array:
        mean, mean_log, entropy = (part[0] for part in gamma_moments(params))
        return total * mean_log - rows * mean - constant + gamma_prior_mean(mean, mean_log, shape, rate) + entropy

    model = isvi.Model({"rate": isvi.positive()}, log_prior, log_likelihood)
    return Problem("Poisson counts", model, {"x": x}, batch_size, elbo, family=families.Gamma())


# Figure 3: an approximation in factors of a chosen size.


def blocked_gaussian(dim: int, factor_size: int, rows: int, batch_size: int) -> Problem:
    """Unknown means of a diagonal Gaussian with unit precisions; the approximation has factors of a chosen size,
    each with a full covariance."""
    x = np.random.default_rng(6).normal(size=(rows, dim)).astype(np.float32)
    total = x.sum(axis=0, dtype=np.float64)
    constant = 0.5 * (float((x.astype(np.float64) ** 2).sum()) + rows * dim * LOG_2PI)

    def log_likelihood(z: dict[str, Array], batch: dict[str, Array]) -> Array:
        return jnp.sum(norm.logpdf(batch["x"], z["mean"]))

    def elbo(problem: Problem, params: Any) -> Array:
        if hasattr(params, "log_scale"):
            variance = jnp.exp(2 * params.log_scale)
        else:
            variance = jnp.sum(params.cholesky**2, axis=2).reshape(-1)
        second = jnp.sum(params.loc**2 + variance)
        likelihood = total @ params.loc - 0.5 * rows * second - constant
        prior = -0.5 * (second + dim * LOG_2PI)
        return likelihood + prior + jnp.sum(problem.approximation.entropy(params))

    model = isvi.Model({"mean": isvi.real(dim)}, lambda z: jnp.sum(norm.logpdf(z["mean"])), log_likelihood)
    family = isvi.Block(size=factor_size)
    return Problem("blocked Gaussian", model, {"x": x}, batch_size, elbo, family=family)
