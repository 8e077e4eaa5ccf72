"""Posteriors whose means and standard deviations are known: by closed forms, or by quadrature in one or two dimensions.

Every function takes a random generator, and gives a posterior of its kind.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln
from scipy.special import digamma, expit, polygamma

import isvi

Random = np.random.Generator
GRID = 401
"""Nodes per axis of a quadrature: for a smooth density that ends inside it the trapezoidal rule is all but exact."""


@dataclass(frozen=True)
class Posterior:
    """A model, its data, and the truth about every entry of its latents, in their order.

    Attributes:
        kind: what is difficult about it.
        families: those that can be asked to approximate it.
    """

    kind: str
    name: str
    model: isvi.Model
    mean: np.ndarray
    sd: np.ndarray
    families: Mapping[str, Any]
    data: Any = None

    @property
    def size(self) -> int:
        return len(self.mean)


MEAN_FIELD = {"MeanField": isvi.MeanField()}
GAUSSIANS = {"MeanField": isvi.MeanField(), "FullRank": isvi.FullRank()}


def vector(
    kind: str, name: str, log_density: Callable[[Any], Any], mean: Any, sd: Any, families: Mapping[str, Any] = GAUSSIANS
) -> Posterior:
    """Of one real vector."""
    mean, sd = np.atleast_1d(np.asarray(mean, float)), np.atleast_1d(np.asarray(sd, float))
    families = MEAN_FIELD if len(mean) == 1 and families is GAUSSIANS else families
    model = isvi.Model({"z": isvi.real(len(mean))}, lambda z: log_density(z["z"]))
    return Posterior(kind, name, model, mean, sd, families)


def rotation(random: Random, size: int) -> np.ndarray:
    return np.linalg.qr(random.normal(size=(size, size)))[0]


def gaussian(random: Random, size: int, condition: float, constant: float = 0.0) -> Posterior:
    """Eigenvalues of the covariance spread over ``condition``, along random axes."""
    axes = rotation(random, size)
    variances = np.exp(random.uniform(-0.5, 0.5, size) * np.log(condition)) * np.exp(random.normal())
    covariance = (axes * variances) @ axes.T
    mean = 3 * random.normal(size=size)
    precision, centre = jnp.asarray(np.linalg.inv(covariance)), jnp.asarray(mean)
    families: dict[str, Any] = dict(GAUSSIANS)
    if size >= 5:
        families["LowRank"] = isvi.LowRank(2)
        families["Block"] = isvi.Block(size=2)
    if size <= 2:
        families["StudentT"] = isvi.StudentT()
    return vector(
        "huge constant" if constant else "Gaussian",
        f"condition {condition:g}" + (f", log joint + {constant:.0e}" if constant else ""),
        lambda z: constant - 0.5 * (z - centre) @ precision @ (z - centre),
        mean,
        np.sqrt(np.diag(covariance)),
        families if size > 1 else {"MeanField": isvi.MeanField(), "StudentT": isvi.StudentT()},
    )


def correlated(random: Random, correlation: float) -> Posterior:
    """Two latents with sd 1."""
    precision = jnp.asarray(np.linalg.inv([[1.0, correlation], [correlation, 1.0]]))
    return vector("Gaussian", f"correlation {correlation}", lambda z: -0.5 * z @ precision @ z, [0, 0], [1, 1])


def skewed(random: Random, size: int, rotated: bool) -> Posterior:
    """Logarithms of Gamma variables with shapes of 1 to 30, on random axes or on the coordinates' own."""
    shape = np.exp(random.uniform(0, np.log(30), size))
    axes = rotation(random, size) if rotated else np.eye(size)
    turned, a = jnp.asarray(axes), jnp.asarray(shape)
    variance = (axes**2) @ polygamma(1, shape)

    def log_density(z: Any) -> Any:
        x = turned.T @ z
        return jnp.sum(a * x - a * jnp.exp(x))

    name = "rotated" if rotated else "independent"
    return vector("skewed", name, log_density, axes @ (digamma(shape) - np.log(shape)), np.sqrt(variance))


def heavy(random: Random, size: int, df: float, jointly: bool) -> Posterior:
    """Student t: one for all entries, or one for each."""

    def log_density(z: Any) -> Any:
        if jointly:
            return -(df + size) / 2 * jnp.log1p(z @ z / df)
        return -(df + 1) / 2 * jnp.sum(jnp.log1p(z**2 / df))

    families = {**GAUSSIANS, "StudentT": isvi.StudentT()}
    sd = np.full(size, np.sqrt(df / (df - 2)))
    return vector("heavy tails", f"df {df:g}, {'joint' if jointly else 'each'}", log_density, 0 * sd, sd, families)


def funnel(random: Random, size: int, width: float) -> Posterior:
    """v ~ N(0, width^2), and ``size`` entries with variance exp(v): E exp(v) = exp(width^2 / 2)."""

    def log_density(z: Any) -> Any:
        v, x = z[0], z[1:]
        return -0.5 * (v / width) ** 2 - 0.5 * jnp.sum(x**2) * jnp.exp(-v) - 0.5 * size * v

    sd = np.array([width, *[np.exp(width**2 / 4)] * size])
    return vector("funnel", f"width {width:g}", log_density, 0 * sd, sd)


def banana(random: Random, bend: float, width: float) -> Posterior:
    """x ~ N(0, width^2), y ~ N(bend (x^2 - width^2), 1)."""

    def log_density(z: Any) -> Any:
        return -0.5 * (z[0] / width) ** 2 - 0.5 * (z[1] - bend * (z[0] ** 2 - width**2)) ** 2

    sd = [width, np.sqrt(1 + 2 * bend**2 * width**4)]
    return vector("banana", f"bend {bend:g}, width {width:g}", log_density, [0, 0], sd)


def shoulder(random: Random, share: float, distance: float) -> Posterior:
    """Two Gaussians that overlap."""
    log_density = lambda z: jnp.logaddexp(  # noqa: E731
        jnp.log1p(-share) - 0.5 * z[0] ** 2, jnp.log(share) - 0.5 * (z[0] - distance) ** 2
    )
    sd = np.sqrt(1 + share * (1 - share) * distance**2)
    return vector("shoulder", f"{share:.0%} at {distance:g}", log_density, [share * distance], [sd])


def regression(random: Random, size: int, rows: int, poisson: bool) -> Posterior:
    """Logistic or Poisson regression of few rows on one or two covariates, with N(0, 2^2) priors."""
    x = random.normal(size=(rows, size)) + 0.3
    w = random.normal(size=size)
    y = random.poisson(np.exp(x @ w)) if poisson else random.uniform(size=rows) < expit(x @ w)
    y = y.astype(float)

    def log_likelihood(z: Any, batch: Any) -> Any:
        eta = batch["x"] @ z["z"]
        cumulant = jnp.exp(eta) if poisson else jax.nn.softplus(eta)
        return jnp.sum(batch["y"] * eta - cumulant)

    def on_grid(points: np.ndarray) -> np.ndarray:
        eta = points @ x.T
        cumulant = np.exp(eta) if poisson else np.logaddexp(0, eta)
        return (y * eta - cumulant).sum(axis=1) - 0.5 * (points**2).sum(axis=1) / 4

    mean, sd = quadrature(on_grid, size)
    model = isvi.Model({"z": isvi.real(size)}, lambda z: -0.5 * jnp.sum(z["z"] ** 2) / 4, log_likelihood)
    families = GAUSSIANS if size > 1 else MEAN_FIELD
    name = f"{'Poisson' if poisson else 'logistic'}, {rows} rows"
    return Posterior("regression", name, model, mean, sd, families, {"x": x, "y": y})


def quadrature(log_density: Callable[[np.ndarray], np.ndarray], size: int, reach: float = 25.0) -> tuple[Any, Any]:
    """Means and sds on a grid: a wide one first, then one of ten sds around what it found."""
    centre, width = np.zeros(size), np.full(size, reach)
    for _ in range(3):
        axes = [np.linspace(c - w, c + w, GRID) for c, w in zip(centre, width, strict=True)]
        points = np.stack([axis.ravel() for axis in np.meshgrid(*axes, indexing="ij")], axis=1)
        values = log_density(points)
        weights = np.exp(values - values.max())
        weights /= weights.sum()
        centre = weights @ points
        sd = np.sqrt(weights @ (points - centre) ** 2)
        width = np.maximum(10 * sd, 4 * (axes[0][1] - axes[0][0]))
    return centre, sd


def rate(random: Random, shape: float) -> Posterior:
    """A positive latent with a Gamma posterior."""
    scale = np.exp(random.normal())
    model = isvi.Model({"z": isvi.positive()}, lambda z: (shape - 1) * jnp.log(z["z"]) - z["z"] / scale)
    families = {"MeanField": isvi.MeanField(), "Gamma": isvi.Gamma()}
    mean, sd = np.array([shape * scale]), np.array([np.sqrt(shape) * scale])
    return Posterior("positive", f"Gamma({shape:.2g})", model, mean, sd, families)


def spread(random: Random, width: float) -> Posterior:
    """A positive latent with a log-normal posterior."""

    def log_density(z: Any) -> Any:
        return -0.5 * (jnp.log(z["z"]) / width) ** 2 - jnp.log(z["z"])

    mean = np.exp(width**2 / 2)
    families = {"LogNormal": isvi.LogNormal(), "Gamma": isvi.Gamma()}
    model = isvi.Model({"z": isvi.positive(via="exp")}, log_density)
    sd = mean * np.sqrt(np.expm1(width**2))
    return Posterior("positive", f"log-normal({width:g})", model, np.array([mean]), np.array([sd]), families)


def share(random: Random, a: float, b: float) -> Posterior:
    """A probability with a Beta posterior."""
    model = isvi.Model(
        {"z": isvi.interval(0.0, 1.0)}, lambda z: (a - 1) * jnp.log(z["z"]) + (b - 1) * jnp.log1p(-z["z"])
    )
    mean, variance = a / (a + b), a * b / (a + b) ** 2 / (a + b + 1)
    families = {"MeanField": isvi.MeanField(), "Beta": isvi.Beta()}
    return Posterior("bounded", f"Beta({a:.2g}, {b:.2g})", model, np.array([mean]), np.array([variance**0.5]), families)


def shares(random: Random, size: int) -> Posterior:
    """A simplex with a Dirichlet posterior."""
    alpha = np.exp(random.uniform(0, 4, size))
    weights = jnp.asarray(alpha - 1)
    model = isvi.Model({"z": isvi.simplex(size)}, lambda z: jnp.sum(weights * jnp.log(z["z"])) - gammaln(2.0))
    total = alpha.sum()
    mean = alpha / total
    sd = np.sqrt(mean * (1 - mean) / (total + 1))
    families = {"MeanField": isvi.MeanField(), "FullRank": isvi.FullRank(), "Dirichlet": isvi.Dirichlet()}
    return Posterior("bounded", f"Dirichlet of {size}", model, mean, sd, families)


def level_and_spread(random: Random, rows: int) -> Posterior:
    """Mean and sd of a few normal numbers, with flat priors on both: Student's t, and an inverse chi."""
    y = random.normal(size=rows)
    centre, square = y.mean(), ((y - y.mean()) ** 2).sum()

    def log_prior(z: Any) -> Any:
        s = z["s"]
        return -rows * jnp.log(s) - 0.5 * (square + rows * (z["m"] - centre) ** 2) / s**2

    # s^2 = square / chi2 with n - 2 degrees of freedom.
    df = rows - 2
    inverse = square / (df - 2)
    first = np.sqrt(square / 2) * np.exp(float(gammaln((df - 1) / 2) - gammaln(df / 2)))
    mean, sd = np.array([centre, first]), np.sqrt([inverse / rows, inverse - first**2])
    model = isvi.Model({"m": isvi.real(), "s": isvi.positive(via="exp")}, log_prior)
    return Posterior("positive", f"level and spread of {rows}", model, mean, sd, GAUSSIANS)


def walk(random: Random, size: int, noise: float) -> Posterior:
    """A random walk with steps of sd 1, each place seen once, with this noise."""
    differences = np.eye(size) - np.eye(size, k=-1)
    precision = differences.T @ differences + np.eye(size) / noise**2
    seen = np.cumsum(random.normal(size=size)) + noise * random.normal(size=size)
    covariance = np.linalg.inv(precision)

    def log_density(z: Any) -> Any:
        steps = jnp.sum((z[1:] - z[:-1]) ** 2) + z[0] ** 2
        return -0.5 * steps - 0.5 * jnp.sum((z - seen) ** 2) / noise**2

    mean, sd = covariance @ seen / noise**2, np.sqrt(np.diag(covariance))
    return vector("random walk", f"noise {noise:g}", log_density, mean, sd)


def grouped(random: Random, groups: int, rows: int, spread: float) -> Posterior:
    """An intercept and effects of groups, of known spread, with normal rows: a Gaussian in which all effects move
    together against the intercept."""
    group = random.integers(0, groups, rows).astype(np.int32)
    y = 2 + spread * random.normal(size=groups)[group] + random.normal(size=rows)
    count, total = (np.bincount(group, weights=one, minlength=groups) for one in (np.ones(rows), y))
    each = count + spread**-2
    # The effects given the intercept are independent; without them the intercept is normal too.
    precision = rows + 0.01 - np.sum(count**2 / each)
    centre = (y.sum() - np.sum(count * total / each)) / precision
    mean = np.concatenate([[centre], (total - count * centre) / each])
    sd = np.sqrt(np.concatenate([[1 / precision], 1 / each + (count / each) ** 2 / precision]))

    def log_likelihood(z: Any, batch: Any) -> Any:
        return -0.5 * jnp.sum((batch["y"] - z["a"] - z["u"][batch["group"]]) ** 2)

    model = isvi.Model(
        {"a": isvi.real(), "u": isvi.real(groups)},
        lambda z: -0.005 * z["a"] ** 2 - 0.5 * jnp.sum(z["u"] ** 2) / spread**2,
        log_likelihood,
    )
    return Posterior(
        "grouped", f"{rows:,} rows, spread {spread:g}", model, mean, sd, MEAN_FIELD, {"y": y, "group": group}
    )


def generated(seed: int = 0) -> Iterator[Posterior]:
    """All of them."""
    random = np.random.default_rng(seed)
    for size in (1, 2, 5, 10, 20, 50):
        for condition in (1.5, 10.0, 100.0):
            yield gaussian(random, size, condition)
    for correlation in (0.5, 0.8, 0.95, 0.99):
        yield correlated(random, correlation)
    for constant in (1e9, 1e13, 1e17):
        yield gaussian(random, 2, 4.0, constant)
    for size in (1, 2, 5, 20, 50):
        for rotated in (False, True) if size > 1 else (False, False, False):
            yield skewed(random, size, rotated)
    for size, df in ((1, 3.0), (1, 5.0), (1, 10.0), (2, 4.0), (5, 4.0), (5, 10.0)):
        yield heavy(random, size, df, jointly=True)
        if size > 1:
            yield heavy(random, size, df, jointly=False)
    for size, width in ((1, 0.5), (1, 1.0), (1, 2.0), (5, 0.5), (5, 1.0), (5, 2.0)):
        yield funnel(random, size, width)
    for bend, width in ((0.1, 1.0), (0.3, 1.0), (1.0, 1.0), (0.1, 3.0), (0.5, 2.0)):
        yield banana(random, bend, width)
    for part, distance in ((0.1, 3.0), (0.3, 2.0), (0.3, 3.0), (0.05, 4.0)):
        yield shoulder(random, part, distance)
    for size in (1, 2):
        for rows in (8, 20, 50, 200):
            for poisson in (False, True):
                for _ in range(3 - size):
                    yield regression(random, size, rows, poisson)
    for shape in (0.7, 2.0, 10.0, 100.0):
        yield rate(random, shape)
    for width in (0.2, 0.5, 1.0):
        yield spread(random, width)
    for rows in (6, 10, 40):
        yield level_and_spread(random, rows)
    for a, b in ((1.5, 1.5), (1.2, 8.0), (30.0, 12.0)):
        yield share(random, a, b)
    for size in (3, 6):
        yield shares(random, size)
    yield from many(random)


def many(random: Random) -> Iterator[Posterior]:
    """Those with more than fifty latents."""
    for size in (100, 200):
        yield gaussian(random, size, 10.0)
        for rotated in (False, True):
            yield skewed(random, size, rotated)
        yield heavy(random, size, 10.0, jointly=True)
        yield heavy(random, size, 6.0, jointly=False)
        for noise in (0.5, 3.0):
            yield walk(random, size, noise)
    for width in (0.1, 0.3, 1.0):
        yield funnel(random, 60, width)
    for groups, rows, width in ((1200, 5000, 1.0), (1200, 20_000, 0.3), (3000, 9000, 1.0)):
        yield grouped(random, groups, rows, width)
