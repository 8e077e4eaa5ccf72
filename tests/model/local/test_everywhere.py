"""Integrals by points everywhere, and the comparison of nodes with them: against sums over fine grids."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.special import logsumexp
from jax.scipy.stats import norm, t

import isvi
from isvi.data import grouped
from isvi.model.local.comparison import compare
from isvi.model.local.marginal import Marginal
from isvi.model.local.nodes import Nodes

GRID = jnp.linspace(-60, 60, 24_001)


@pytest.fixture(autouse=True)
def double_precision():
    with jax.enable_x64(True):
        yield


def two_signs(z):
    """Rows say u^2, so that both signs of u are alike but for the prior's mean."""
    return norm.logpdf(z["u"], 0.1, z["tau"])


def heavy(z):
    """A spike at 0 with long tails: rows far out have mass there and at 0."""
    return t.logpdf(z["u"] / z["tau"], 1) - jnp.log(z["tau"])


def marginal(log_prior, log_row, rule) -> Marginal:
    return Marginal({"u": isvi.real()}, log_prior, log_row, rule)


CASES = {
    "two signs": (two_signs, lambda z, row: norm.logpdf(row["y"], z["u"] ** 2, 1.0), 2.0, np.linspace(0.5, 8, 40)),
    "spike": (heavy, lambda z, row: norm.logpdf(row["y"], z["u"], 1.0), 0.05, np.linspace(2.0, 4.5, 40)),
    "near a Gaussian": (
        lambda z: norm.logpdf(z["u"], 0.0, z["tau"]),
        lambda z, row: -jax.nn.softplus((1 - 2 * (row["y"] > 0)) * z["u"]),
        1.0,
        np.linspace(-1, 1, 40),
    ),
}


def exactly(log_prior, log_row, tau, y):
    """Log integrals of groups of one row each, by a grid of steps of 0.005."""
    prior = jax.vmap(lambda u: log_prior({"u": u, "tau": tau}))(GRID)
    rows = jax.vmap(lambda one: jax.vmap(lambda u: log_row({"u": u, "tau": tau}, {"y": one}))(GRID))(y)
    return logsumexp(prior + rows, axis=1) + jnp.log(GRID[1] - GRID[0])


def pack_of(y):
    data = grouped({"y": y, "group": np.arange(len(y))}, by="group").cut(len(y))
    return jax.tree.map(lambda a: a[0], data.full)


@pytest.mark.parametrize("case", CASES)
def test_points_everywhere_find_all_of_the_mass_and_its_gradient(case):
    """128 points of each of eight Gaussians: no weight exceeds a hundred times the mean, and the standard error of a
    group's integral is about 2%; of 40 groups the furthest is within 10%, and the mean of their gradients within 3%.
    Points are fixed: this does not fail at random."""
    log_prior, log_row, tau, y = CASES[case]
    one = marginal(log_prior, log_row, Nodes(1, 128, everywhere=True))
    pack = pack_of(y)

    def total(tau):
        found = one.integrate({"tau": tau}, pack)
        return found.log_integral.sum(), found

    gradient, found = jax.grad(total, has_aux=True)(jnp.asarray(tau))
    exact = exactly(log_prior, log_row, tau, jnp.asarray(y))
    exact_gradient = jax.grad(lambda tau: exactly(log_prior, log_row, tau, jnp.asarray(y)).sum())(jnp.asarray(tau))
    np.testing.assert_allclose(found.log_integral, exact, atol=0.1)
    assert float(gradient) == pytest.approx(float(exact_gradient), rel=0.03, abs=0.03 * len(y))
    assert found.found.all()


@pytest.mark.parametrize("case", CASES)
def test_mass_that_nodes_do_not_reach_is_told_and_what_they_reach_is_not(case):
    log_prior, log_row, tau, y = CASES[case]
    found = compare(marginal(log_prior, log_row, Nodes.choose(1, None)), {"tau": jnp.asarray(tau)}, pack_of(y))
    few = marginal(log_prior, log_row, Nodes.choose(1, None)).integrate({"tau": jnp.asarray(tau)}, pack_of(y))
    off = np.asarray(exactly(log_prior, log_row, tau, jnp.asarray(y)) - few.log_integral)
    np.testing.assert_allclose(found.off, off, atol=0.25)
    missing = np.abs(off) > 0.5
    assert missing.any() == (case != "near a Gaussian")
    assert np.asarray(found.off)[missing].min(initial=np.inf) > 0.25
    assert found.elsewhere.any() == (case != "near a Gaussian")


def test_there_are_rules_to_go_on_with_until_there_are_none():
    rule = Nodes.choose(1, None)
    counts = []
    while rule is not None:
        counts.append((rule.count, rule.everywhere))
        rule = rule.next(elsewhere=False)
    assert counts == [(15, False), (31, False), (63, False), (32, True), (128, True), (512, True)]
    assert Nodes.choose(2, None).next(elsewhere=True).everywhere
    assert Nodes.choose(1, 7).next(elsewhere=True) is None  # as it was asked for
    assert Nodes.choose(5, None).next(elsewhere=False).count == 1024


def test_points_where_a_density_overflows_do_not_count():
    """Far out the exponential of a rate is infinite in single precision, and so would be the gradient."""
    with jax.enable_x64(False):
        one = marginal(
            lambda z: norm.logpdf(z["u"], 0.0, z["tau"]),
            lambda z, row: row["y"] * z["u"] - jnp.exp(z["u"]),
            Nodes(1, 32, everywhere=True),
        )
        pack = jax.tree.map(lambda a: a.astype(jnp.float32) if a.dtype.kind == "f" else a, pack_of(np.arange(5.0)))
        gradient = jax.grad(lambda tau: one.integrate({"tau": tau}, pack).log_integral.sum())(jnp.float32(40.0))
        assert jnp.isfinite(gradient)
