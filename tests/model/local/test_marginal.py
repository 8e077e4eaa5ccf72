"""Integrals over local latents, against closed forms and against sums over many nodes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.special import gammaln, logsumexp
from jax.scipy.stats import multivariate_normal, norm

import isvi
from isvi.data import grouped
from isvi.data.groups.packs import Pack
from isvi.model.local.marginal import Marginal
from isvi.model.local.nodes import Nodes

SIZES = (1, 2, 3, 40, 7)


@pytest.fixture(autouse=True)
def double_precision():
    with jax.enable_x64(True):
        yield


def one_pack(columns) -> Pack:
    dataset = grouped(columns, by="group").cut(10**6)
    return jax.tree.map(lambda a: a[0], dataset.full)


def labels() -> np.ndarray:
    return np.repeat(np.arange(len(SIZES)), SIZES)


def linear(size: int) -> Marginal:
    """y = w'(b + u) + noise, with u of ``size`` entries of covariance S S'."""
    return Marginal(
        {"u": isvi.real(size)},
        lambda z: multivariate_normal.logpdf(z["u"], jnp.zeros(size), z["S"] @ z["S"].T),
        lambda z, row: norm.logpdf(row["y"], row["w"] @ (z["b"] + z["u"]), z["sigma"]),
        Nodes.choose(size, None),
    )


def linear_exactly(z, columns) -> jax.Array:
    """Each group is a Gaussian vector."""
    total = jnp.zeros(())
    for group in range(len(SIZES)):
        w, y = (jnp.asarray(columns[name][columns["group"] == group]) for name in ("w", "y"))
        covariance = w @ z["S"] @ z["S"].T @ w.T + z["sigma"] ** 2 * jnp.eye(len(y))
        total += multivariate_normal.logpdf(y, w @ z["b"], covariance)
    return total


@pytest.mark.parametrize(
    ("size", "tolerance"), [(1, 1e-8), (2, 1e-8), pytest.param(3, 1e-8, marks=pytest.mark.slow), (4, 0.05)]
)
def test_linear_groups_have_their_closed_form_and_its_gradient(size, tolerance):
    """Up to three dimensions exact, as Gauss-Hermite quadrature is for a Gaussian. With points: for each group the
    relative error of an average of 256 weights of variance 0.13 is at most 0.022 (less, as they are evenly spread), so
    that of five groups is within 0.05 unless it is further off than one such error of independent draws. The key is
    fixed: it does not fail at random."""
    random = np.random.default_rng(size)
    columns = {"w": random.normal(size=(sum(SIZES), size)), "y": random.normal(size=sum(SIZES)), "group": labels()}
    z = {
        "b": jnp.asarray(random.normal(size=size)),
        "S": jnp.asarray(np.tril(random.normal(size=(size, size))) + 2 * np.eye(size)),
        "sigma": jnp.asarray(0.7),
    }
    marginal, pack = linear(size), one_pack(columns)
    value, gradient = jax.value_and_grad(lambda z: marginal(z, pack))(z)
    exact, exact_gradient = jax.value_and_grad(lambda z: linear_exactly(z, columns))(z)
    assert value == pytest.approx(float(exact), abs=tolerance)
    largest = max(float(jnp.abs(leaf).max()) for leaf in jax.tree.leaves(exact_gradient))
    for name in z:
        np.testing.assert_allclose(gradient[name], exact_gradient[name], atol=tolerance * (1 + largest))


def bernoulli(z, row):
    return -jax.nn.softplus((1 - 2 * row["y"]) * (z["a"] + z["u"]))


def poisson(z, row):
    rate = z["a"] + z["u"]
    return row["y"] * rate - jnp.exp(rate) - gammaln(row["y"] + 1)


def by_sum(z, columns, log_row) -> jax.Array:
    """On a grid of 40,001 values of u / tau, which is far finer than any group's posterior."""
    grid = jnp.linspace(-12, 12, 40_001)
    total = jnp.zeros(())
    for group in range(len(SIZES)):
        rows = {"y": jnp.asarray(columns["y"][columns["group"] == group])}
        at = {"a": z["a"], "u": z["tau"] * grid[:, None]}
        values = norm.logpdf(grid) + log_row(at, rows).sum(axis=-1)
        total += logsumexp(values) + jnp.log(grid[1] - grid[0])
    return total


@pytest.mark.parametrize("precision", [np.float32, np.float64])
@pytest.mark.parametrize(
    ("log_row", "draw"),
    [
        pytest.param(bernoulli, lambda random, count: random.integers(0, 2, count), id="logistic"),
        pytest.param(bernoulli, lambda random, count: np.ones(count), id="only ones"),
        pytest.param(poisson, lambda random, count: random.poisson(2.0, count), id="Poisson"),
        pytest.param(poisson, lambda random, count: np.zeros(count), id="only zeros"),
        pytest.param(poisson, lambda random, count: random.poisson(300.0, count), id="large counts"),
    ],
)
def test_groups_without_a_closed_form_have_their_sum_and_its_gradient(log_row, draw, precision):
    """To 1e-3 nats in five groups, where Laplace's approximation is off by more in each; and the gradient to 0.2%."""
    columns = {"y": draw(np.random.default_rng(3), sum(SIZES)).astype(float), "group": labels()}
    marginal = Marginal(
        {"u": isvi.real()}, lambda z: norm.logpdf(z["u"], 0.0, z["tau"]), log_row, Nodes.choose(1, None)
    )
    z = {"a": jnp.asarray(0.3), "tau": jnp.asarray(1.2)}
    pack = jax.tree.map(lambda a: a.astype(precision) if a.dtype.kind == "f" else a, one_pack(columns))
    at = jax.tree.map(lambda a: a.astype(precision), z)
    with jax.enable_x64(precision is np.float64):
        value, gradient = jax.value_and_grad(lambda z: marginal(z, pack))(at)
        assert marginal.integrate(at, pack).found.all()
    exact, exact_gradient = jax.value_and_grad(lambda z: by_sum(z, columns, log_row))(z)
    # A row's largest term is about log y!, which it is rounded to.
    terms = abs(float(exact)) + float(gammaln(columns["y"] + 1).sum())
    rounding = 2 * float(np.finfo(precision).eps) * terms
    assert float(value) == pytest.approx(float(exact), abs=1e-3 + rounding)
    for name in z:
        assert float(gradient[name]) == pytest.approx(float(exact_gradient[name]), rel=2e-3, abs=2e-3 + rounding)


def test_a_positive_latent_for_every_row_is_the_negative_binomial():
    """Poisson with a Gamma rate, integrated over the log of the rate: to 1e-3 nats in each of 50 rows."""
    y = np.random.default_rng(5).negative_binomial(3, 0.3, size=50)
    marginal = Marginal(
        {"rate": isvi.positive(via="exp")},
        lambda z: (
            z["r"] * jnp.log(z["r"] / z["m"])
            - gammaln(z["r"])
            + (z["r"] - 1) * jnp.log(z["rate"])
            - z["rate"] * z["r"] / z["m"]
        ),
        lambda z, row: row["y"] * jnp.log(z["rate"]) - z["rate"] - gammaln(row["y"] + 1.0),
        Nodes.choose(1, None),
    )

    def exactly(z):
        share = z["m"] / (z["m"] + z["r"])
        count = jnp.asarray(y, float)
        combinations = gammaln(count + z["r"]) - gammaln(z["r"]) - gammaln(count + 1)
        return jnp.sum(combinations + z["r"] * jnp.log1p(-share) + count * jnp.log(share))

    z = {"r": jnp.asarray(2.5), "m": jnp.asarray(6.0)}
    value, gradient = jax.value_and_grad(lambda z: marginal(z, {"y": jnp.asarray(y)}))(z)
    exact, exact_gradient = jax.value_and_grad(exactly)(z)
    assert float(value) == pytest.approx(float(exact), abs=0.05)
    for name in z:
        assert float(gradient[name]) == pytest.approx(float(exact_gradient[name]), abs=0.05)


def test_a_density_that_has_no_mode_is_told():
    """The likelihood of one group alone rises without end, and its prior is flat: no mode is found, and it says so."""
    marginal = Marginal({"u": isvi.real()}, lambda z: 0.0 * z["u"], lambda z, row: row["y"] * z["u"], Nodes(1, 5))
    pack = one_pack({"y": np.array([1.0, 0.0]), "group": np.array([0, 1])})
    assert not marginal.integrate({"a": jnp.zeros(())}, pack).found.any()
