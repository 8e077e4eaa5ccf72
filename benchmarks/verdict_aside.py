"""More posteriors whose truth is known, of shapes that :mod:`benchmarks.verdict_posteriors` does not have.

They were looked at only after the verdict had been mended by those.
"""

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.stats import norm
from scipy.special import gamma
from scipy.stats import norm as normal

import isvi
from benchmarks.verdict_posteriors import GAUSSIANS, Posterior, Random, quadrature, rotation, vector

TAUS = 2001
"""Nodes of the integral over the spread of groups."""


def light(random: Random, size: int, power: float) -> Posterior:
    """exp(-|x|^power) along random axes."""
    axes = rotation(random, size)
    turned = jnp.asarray(axes)
    sd = np.sqrt((axes**2).sum(axis=1) * gamma(3 / power) / gamma(1 / power))
    return vector(
        "light tails", f"power {power:g}", lambda z: -jnp.sum(jnp.abs(turned.T @ z) ** power), np.zeros(size), sd
    )


def logistic(random: Random, size: int) -> Posterior:
    """Logistic variables: tails that fall like exp(-|z|)."""
    return vector(
        "logistic variables",
        "each",
        lambda z: jnp.sum(jax.nn.log_sigmoid(z) + jax.nn.log_sigmoid(-z)),
        np.zeros(size),
        np.full(size, np.pi / np.sqrt(3)),
    )


def skew_normal(random: Random, size: int, slant: float) -> Posterior:
    """One side of every axis cut off, the harder the larger the slant."""
    axes = rotation(random, size)
    turned, part = jnp.asarray(axes), slant / np.sqrt(1 + slant**2)
    mean, variance = part * np.sqrt(2 / np.pi), 1 - 2 * part**2 / np.pi

    def log_density(z: Any) -> Any:
        x = turned.T @ z
        return jnp.sum(norm.logpdf(x) + norm.logcdf(slant * x))

    return vector(
        "skew normal", f"slant {slant:g}", log_density, axes.sum(axis=1) * mean, np.full(size, np.sqrt(variance))
    )


def two_widths(random: Random, size: int, share: float, width: float) -> Posterior:
    """All entries together have another sd in a share of the cases: a wide skirt, or a narrow spike."""

    def log_density(z: Any) -> Any:
        usual, other = -0.5 * z @ z, -0.5 * z @ z / width**2 - size * jnp.log(width)
        return jnp.logaddexp(jnp.log1p(-share) + usual, jnp.log(share) + other)

    sd = np.full(size, np.sqrt(1 - share + share * width**2))
    return vector("two widths", f"{share:.0%} with sd {width:g}", log_density, np.zeros(size), sd)


def cross(random: Random, strength: float) -> Posterior:
    """Mass along both axes, but not between them."""

    def on_grid(points: np.ndarray) -> np.ndarray:
        x, y = points.T
        return -0.5 * (x**2 + y**2) / 4 - strength * x**2 * y**2

    mean, sd = quadrature(on_grid, 2)
    return vector(
        "cross", f"strength {strength:g}", lambda z: -0.5 * z @ z / 4 - strength * z[0] ** 2 * z[1] ** 2, mean, sd
    )


def two_humps(random: Random, share: float, distance: float) -> Posterior:
    """Two Gaussians that hardly overlap, in two dimensions."""
    centre = jnp.array([distance, 0.0])

    def log_density(z: Any) -> Any:
        other = -0.5 * (z - centre) @ (z - centre)
        return jnp.logaddexp(jnp.log1p(-share) - 0.5 * z @ z, jnp.log(share) + other)

    sd = [np.sqrt(1 + share * (1 - share) * distance**2), 1.0]
    return vector("two humps", f"{share:.0%} at {distance:g}", log_density, [share * distance, 0.0], sd)


def bananas(random: Random, size: int, bend: float) -> Posterior:
    """Several bananas at once, along random axes."""
    axes = rotation(random, size)
    turned = jnp.asarray(axes)
    variance = np.concatenate([np.ones(size // 2), np.full(size // 2, 1 + 2 * bend**2)])

    def log_density(z: Any) -> Any:
        x, y = jnp.split(turned.T @ z, 2)
        return -0.5 * jnp.sum(x**2) - 0.5 * jnp.sum((y - bend * (x**2 - 1)) ** 2)

    return vector(
        "bananas", f"{size // 2} with bend {bend:g}", log_density, np.zeros(size), np.sqrt(axes**2 @ variance)
    )


def schools(random: Random, groups: int, noise: float, centred: bool) -> Posterior:
    """Means of a few groups around a level, with an unknown spread: everything but the spread is Gaussian, given it."""
    y = 1.0 + random.normal(size=groups) + noise * random.normal(size=groups)
    seen, truth = jnp.asarray(y), _schools(y, noise, centred)
    latents = {"level": isvi.real(), "effects": isvi.real(groups), "spread": isvi.positive(via="exp")}

    def log_joint(z: dict[str, Any]) -> Any:
        level, effects, spread = z["level"], z["effects"], z["spread"]
        prior = norm.logpdf(level, 0, 5) - 0.5 * (spread / 2) ** 2
        if centred:
            return prior + norm.logpdf(effects, level, spread).sum() + norm.logpdf(seen, effects, noise).sum()
        return prior + norm.logpdf(effects).sum() + norm.logpdf(seen, level + spread * effects, noise).sum()

    name = f"{groups} groups, noise {noise:g}, {'centred' if centred else 'non-centred'}"
    return Posterior("schools", name, isvi.Model(latents, log_joint), *truth, GAUSSIANS)


def _schools(y: np.ndarray, noise: float, centred: bool) -> tuple[np.ndarray, np.ndarray]:
    """Means and sds of the level, the effects and the spread, by the trapezoidal rule over the spread's logarithm."""
    taus = np.exp(np.linspace(-12, 3, TAUS))
    prior = np.diag([25.0, *np.ones(len(y))])
    log_weights, means, squares = [], [], []
    for tau in taus:
        design = np.column_stack([np.ones(len(y)), tau * np.eye(len(y))])
        marginal = design @ prior @ design.T + noise**2 * np.eye(len(y))
        gain = np.linalg.solve(marginal, design @ prior).T
        mean, covariance = gain @ y, prior - gain @ design @ prior
        shown = np.vstack([np.eye(len(y) + 1)[0], design if centred else np.eye(len(y) + 1)[1:]])
        mean, covariance = shown @ mean, shown @ covariance @ shown.T
        evidence = -0.5 * y @ np.linalg.solve(marginal, y) - 0.5 * np.linalg.slogdet(marginal)[1]
        log_weights.append(evidence - 0.5 * (tau / 2) ** 2 + np.log(tau))
        means.append([*mean, tau])
        squares.append([*(mean**2 + np.diag(covariance)), tau**2])
    weights = np.exp(np.array(log_weights) - max(log_weights))
    weights /= weights.sum()
    mean, square = weights @ np.array(means), weights @ np.array(squares)
    return mean, np.sqrt(square - mean**2)


def truncated(random: Random, edge: float) -> Posterior:
    """A positive latent with a Gaussian cut off at zero."""
    beyond = normal.pdf(edge) / normal.sf(-edge)
    mean = edge + beyond
    sd = np.sqrt(1 - edge * beyond - beyond**2)
    model = isvi.Model({"z": isvi.positive()}, lambda z: -0.5 * (z["z"] - edge) ** 2)
    families = {"MeanField": isvi.MeanField(), "Gamma": isvi.Gamma()}
    return Posterior("positive", f"Gaussian at {edge:g}, cut at 0", model, np.array([mean]), np.array([sd]), families)


def aside(seed: int) -> Iterator[Posterior]:
    """All of them."""
    random = np.random.default_rng(seed)
    for size in (1, 2, 10, 60):
        for power in (1.5, 4.0, 8.0):
            yield light(random, size, power)
        yield logistic(random, size)
        for slant in (2.0, 6.0):
            yield skew_normal(random, size, slant)
        for share, width in ((0.05, 5.0), (0.2, 3.0), (0.2, 0.2)):
            yield two_widths(random, size, share, width)
    for strength in (0.1, 1.0, 10.0):
        yield cross(random, strength)
    for share, distance in ((0.5, 3.0), (0.3, 5.0), (0.1, 4.0)):
        yield two_humps(random, share, distance)
    for size in (4, 12, 60):
        for bend in (0.15, 0.5):
            yield bananas(random, size, bend)
    for groups, noise in ((5, 0.3), (8, 1.0), (30, 1.0)):
        for centred in (False, True):
            yield schools(random, groups, noise, centred)
    for edge in (-2.0, 0.0, 1.5):
        yield truncated(random, edge)
