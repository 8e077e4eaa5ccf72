"""Moments of many latents without draws, against closed forms and draws."""

import jax.numpy as jnp
import numpy as np
from scipy.stats import norm

import isvi
from isvi.results import moments


def many(**latents: isvi.Latent) -> isvi.Fit:
    """A fit of a thousand and some entries, with parameters put in by hand."""
    model = isvi.Model(
        {"w": isvi.real(600), **latents},
        lambda z: sum(jnp.sum(-0.5 * value**2) for value in z.values()),
    )
    fit = isvi.fit(model, algorithm=isvi.SGD(), budget=2, progress=False)
    random = np.random.default_rng(0)
    loc = jnp.asarray(random.normal(size=fit.approximation.dim), jnp.float32)
    scale = jnp.asarray(random.uniform(0.1, 1.0, size=fit.approximation.dim), jnp.float32)
    return isvi.Fit(
        model, fit.approximation, fit.dataset, fit.approximation.init(loc, scale), fit.history, fit.status, 2, 2
    )


def test_real_latents_are_exact_and_positive_ones_by_quadrature() -> None:
    """A positive latent is softplus(u), with u Gaussian: against sums over a fine grid, and the quantiles of u."""
    fit = many(tau=isvi.positive(500))
    loc, scale = (np.asarray(leaf, float) for leaf in (fit.params.loc, jnp.exp(fit.params.log_scale)))
    np.testing.assert_allclose(fit.mean()["w"], loc[:600], rtol=1e-6)
    np.testing.assert_allclose(fit.sd()["w"], scale[:600], rtol=1e-6)
    grid = np.linspace(-9, 9, 2001)
    share = norm.pdf(grid) / norm.pdf(grid).sum()
    values = np.logaddexp(0, loc[600:] + grid[:, None] * scale[600:])
    mean = share @ values
    np.testing.assert_allclose(fit.mean()["tau"], mean, rtol=1e-6)
    np.testing.assert_allclose(fit.sd()["tau"], np.sqrt(share @ (values - mean) ** 2), rtol=1e-5)
    rows = fit.summary().values[600:]
    exact = [np.logaddexp(0, loc[600:] + norm.ppf(one) * scale[600:]) for one in (0.05, 0.5, 0.95)]
    np.testing.assert_allclose(rows[:, 2:].T, exact, rtol=1e-5)


def test_no_draws_are_made_of_a_hundred_thousand_latents() -> None:
    """10,000 draws of them would take 4 GB."""
    fit = many(effects=isvi.real(100_000))
    assert fit.mean()["effects"].shape == (100_000,)
    assert len(fit.summary().names) == 100_600
    assert fit.finite


def test_simplexes_are_still_drawn_but_fewer_of_them_where_there_are_many() -> None:
    """Means of 10,000 mirrored draws of a simplex: their sum is 1; the real latent beside it stays exact."""
    fit = many(shares=isvi.simplex(600, flat_prior=True))
    np.testing.assert_allclose(fit.mean()["shares"].sum(), 1, rtol=1e-5)
    np.testing.assert_allclose(fit.mean()["w"], np.asarray(fit.params.loc, float)[:600], rtol=1e-6)
    assert moments.affordable_draws(1_000_000) == 100
