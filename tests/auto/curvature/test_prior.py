"""Steps along directions that only the prior tells about."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.stats import norm
from jaxtyping import Array, Float

import isvi
from isvi.auto.curvature.prior import Gaussian, Likelihood, best_root, best_step

LEVELS, ROWS = 12, 12_000


def gaussian(z: Float[Array, " dim"]) -> Float[Array, ""]:
    return norm.logpdf(z, 1.0, 2.0).sum()


def funnel(z: Float[Array, " dim"]) -> Float[Array, ""]:
    return norm.logpdf(z[1:], 0, jnp.exp(z[0])).sum() + norm.logpdf(z[0], 0, 3)


def unlimited(step: Float[Array, " dim"]) -> Float[Array, " dim"]:
    return step


def test_with_a_gaussian_prior_one_turn_is_newtons() -> None:
    """Everything is a parabola, and the best mean and covariance are those of a conjugate posterior."""
    rng = np.random.default_rng(0)
    factor = jnp.asarray(np.tril(rng.normal(size=(3, 3))) + 2 * np.eye(3))
    root = rng.normal(size=(3, 3))
    likelihood = jnp.asarray(root @ root.T)
    q = Gaussian(jnp.array([3.0, 0.0, -1.0]), factor)
    known = factor.T @ factor / 4
    found, there = best_root(gaussian, q, likelihood, jnp.eye(3))
    np.testing.assert_allclose(found @ found.T, likelihood + known, rtol=1e-4)
    np.testing.assert_allclose(there, known, rtol=1e-4)

    # The slope of the log joint at 0 has the prior's in it.
    slope = jnp.array([1.0, -2.0, 0.5])
    precision = likelihood + known
    step = best_step(
        gaussian,
        q,
        Likelihood(slope, jnp.zeros(3), likelihood),
        lambda gradient: jnp.linalg.solve(precision, gradient),
        unlimited,
    )
    np.testing.assert_allclose(step, jnp.linalg.solve(precision, slope), rtol=1e-4)


def test_where_effects_are_far_from_their_mean_the_scale_follows_them() -> None:
    """The likelihood holds three effects at 3 and says nothing of their scale: it goes to where the prior has its top,
    though a Newton step from a scale of e^-3 would go beyond all numbers."""
    held = 1e4
    q = Gaussian(jnp.array([-3.0, 3.0, 3.0, 3.0]), 0.01 * jnp.eye(4))
    likelihood = Likelihood(
        jax.grad(funnel)(q.location) @ q.factor, jnp.zeros(4), 1e-4 * jnp.diag(jnp.array([0, held, held, held]))
    )
    step = best_step(funnel, q, likelihood, lambda gradient: gradient, unlimited)
    before, after = funnel(q.location), funnel(q.location + q.factor @ step)
    assert after > before + 100


def test_an_upward_prior_leaves_a_precision_that_is_positive() -> None:
    """Around far effects the funnel curves upwards in some direction, and the likelihood is flat."""
    q = Gaussian(jnp.array([0.0, 2.0, 2.0, 2.0]), 0.1 * jnp.eye(4))
    assert np.linalg.eigvalsh(-jax.hessian(funnel)(q.location)).min() < 0
    root, _ = best_root(funnel, q, 1e-6 * jnp.eye(4), jnp.eye(4))
    assert np.isfinite(np.asarray(root)).all()
    assert (np.diagonal(root) > 0).all()


def far_effects() -> tuple[isvi.Model, dict[str, np.ndarray]]:
    """Exponential responses around e^6, an intercept and centred effects: the approach ends where the effects have
    taken over half of the intercept, and there the prior curves upwards along the way back."""
    rng = np.random.default_rng(3)
    level = np.minimum(rng.geometric(0.25, ROWS) - 1, LEVELS - 1).astype(np.int32)
    y = rng.exponential(np.exp(6 + 0.5 * rng.normal(size=LEVELS)[level])).astype(np.float32)
    model = isvi.Model(
        {"a": isvi.real(), "s": isvi.positive(), "u": isvi.real(LEVELS)},
        lambda z: norm.logpdf(z["a"], 0, 10) + norm.logpdf(z["s"]) + norm.logpdf(z["u"], 0, z["s"]).sum(),
        lambda z, r: jnp.sum(-(z["a"] + z["u"][r["level"]]) - r["y"] * jnp.exp(-(z["a"] + z["u"][r["level"]]))),
    )
    return model, {"level": level, "y": y}


def quadrature(data: dict[str, np.ndarray]) -> tuple[float, float]:
    """Mean and sd of the intercept under the posterior, on a grid over (a, log s): given those, the effects are
    independent, and each is integrated over a grid of its own."""
    number = np.bincount(data["level"], minlength=LEVELS)
    total = np.bincount(data["level"], data["y"].astype(float), LEVELS)
    centres = np.log(total / number)
    a, log_s = np.linspace(4.5, 7.5, 151), np.linspace(-2.5, 1.5, 81)
    log_joint = -0.5 * (a[:, None] / 10) ** 2 - 0.5 * np.exp(2 * log_s) + log_s
    for count, centre, sums in zip(number, centres, total, strict=True):
        eta = centre + np.linspace(-6, 6, 241) / np.sqrt(count)
        likelihood = -count * eta - sums * np.exp(-eta)
        effect = (eta[:, None, None] - a[:, None]) / np.exp(log_s)
        terms = (likelihood - likelihood.max())[:, None, None] - 0.5 * effect**2 - log_s
        log_joint = log_joint + np.log(np.exp(terms).sum(axis=0))
    weights = np.exp(log_joint - log_joint.max()).sum(axis=1)
    weights /= weights.sum()
    mean = weights @ a
    return mean, float(np.sqrt(weights @ (a - mean) ** 2))


@pytest.mark.parametrize("seed", range(3))
def test_effects_that_took_over_the_intercept_give_it_back(seed: int) -> None:
    model, data = far_effects()
    fit = isvi.fit(model, data, batch_size=200, seed=seed)
    mean, sd = quadrature(data)
    assert fit.status.kind == "converged"
    assert abs(fit.mean()["a"] - mean) < 0.15 * sd
    # The best Gaussian is narrower than a posterior that is a mixture over scales.
    assert 0.8 < fit.sd()["a"] / sd < 1.1
