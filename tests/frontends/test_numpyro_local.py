"""NumPyro models with a plate of groups: the same posterior as the model written for isvi."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import isvi
from tests.support.mixed import linear_grid, linear_rows


def schools(y, group, num_groups):
    m = numpyro.sample("m", dist.Normal(0, 5))
    tau = numpyro.sample("tau", dist.HalfNormal(2))
    with numpyro.plate("schools", num_groups):
        u = numpyro.sample("u", dist.Normal(0, tau))
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.Normal(m + u[group], 1), obs=y)


def test_it_has_the_posterior_of_the_closed_form():
    """Means within 0.1 sds and sds within 10%, as "converged" promises; against a grid over the exact marginal."""
    rows = linear_rows()
    model = isvi.from_numpyro(schools, num_groups=200, local="schools", by="group")
    fit = isvi.fit(model, rows, batch_size=250, progress=False)
    mean, sd = linear_grid(rows)
    assert fit.status.kind == "converged"
    assert sorted(fit.mean()) == ["m", "tau"]
    for name in mean:
        assert fit.mean()[name] == pytest.approx(mean[name], abs=0.1 * sd[name])
        assert fit.sd()[name] == pytest.approx(sd[name], rel=0.1)
    assert fit.local([3, 5], num_samples=50).draws["u"].shape == (50, 2)


def correlated(x, y, group, num_groups):
    """Vectors of effects, with a soft constraint on a global latent and one on each group's."""
    tau = numpyro.sample("tau", dist.HalfNormal(1).expand([2]).to_event(1))
    numpyro.factor("soft", -5 * tau.sum())
    with numpyro.plate("schools", num_groups):
        u = numpyro.sample("u", dist.Normal(0, tau).to_event(1))
        numpyro.factor("each", -(u[..., 0] ** 2))
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.Normal(u[group, 0] + x * u[group, 1], 1), obs=y)


def test_sites_go_where_they_belong():
    rows = {"x": np.ones(4), "y": np.arange(4.0), "group": [0, 0, 1, 2]}
    bound = isvi.from_numpyro(correlated, num_groups=3, local="schools", by="group").bind(rows).model
    z = {"tau": jnp.array([0.5, 2.0])}
    prior = dist.HalfNormal(1).log_prob(z["tau"]).sum() - 5 * 2.5
    assert float(bound.log_prior(z)) == pytest.approx(float(prior), rel=1e-5)
    marginal = bound.log_likelihood
    at = {**z, "u": jnp.array([0.3, -0.2])}
    local = dist.Normal(0, z["tau"]).log_prob(at["u"]).sum() - 0.3**2
    assert float(marginal.log_local_prior(at)) == pytest.approx(float(local), rel=1e-5)
    row = {"x": jnp.array(2.0), "y": jnp.array(1.0)}
    assert float(marginal.log_row(at, row)) == pytest.approx(float(dist.Normal(-0.1, 1).log_prob(1.0)), rel=1e-5)


def test_latents_of_the_rows_themselves():
    def model(y):
        tau = numpyro.sample("tau", dist.HalfNormal(2))
        with numpyro.plate("rows", len(y)):
            u = numpyro.sample("u", dist.Normal(0, tau))
            numpyro.sample("y", dist.Normal(u, 1), obs=y)

    y = 2.0 * np.random.default_rng(0).normal(size=1_500)
    fit = isvi.fit(isvi.from_numpyro(model, local="rows"), {"y": y}, batch_size=500, progress=False)
    assert np.sqrt(1 + fit.mean()["tau"] ** 2) == pytest.approx(np.sqrt(np.mean(y**2)), rel=0.02)


def test_wrong_use():
    rows = {"y": np.ones(4), "group": [0, 0, 1, 2]}

    def for_all(y, group):
        with numpyro.plate("schools", 3):
            u = numpyro.sample("u", dist.Normal(jnp.arange(3.0), numpyro.sample("tau", dist.HalfNormal(1))))
        numpyro.sample("y", dist.Normal(u[group], 1), obs=y)

    with pytest.raises(isvi.ModelError, match="has 3 entries for one group"):
        isvi.fit(isvi.from_numpyro(for_all, local="schools", by="group"), rows)

    def moving(y, group):
        tau = numpyro.sample("tau", dist.HalfNormal(1))
        with numpyro.plate("schools", 3):
            u = numpyro.sample("u", dist.Uniform(0, tau))
        numpyro.sample("y", dist.Normal(u[group], 1), obs=y)

    with pytest.raises(isvi.ModelError, match="support of the latent site 'u' depends on other latents"):
        isvi.fit(isvi.from_numpyro(moving, local="schools", by="group"), rows)
    with pytest.raises(isvi.ModelError, match=r"in a plate 'teachers'; its plates are \['rows', 'schools'\]"):
        isvi.fit(isvi.from_numpyro(schools, num_groups=3, local="teachers", by="group"), rows)
    with pytest.raises(isvi.ConfigurationError, match="goes with local"):
        isvi.from_numpyro(schools, by="group")
