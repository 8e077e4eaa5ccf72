"""The bent Gaussian against its own map: inverse, Jacobian, entropy, Fisher information, by autodiff and on grids."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from scipy.integrate import quad
from scipy.stats import multivariate_normal, norm

import isvi
from isvi.families.warped import NODE_WEIGHTS, NODES, Tails, WarpedGaussian, WarpedParams

pytestmark = pytest.mark.usefixtures("x64")
FACTORS = WarpedGaussian(1, 3)


@pytest.fixture
def params() -> WarpedParams:
    generator = np.random.default_rng(1)
    factor = np.eye(3) + 0.3 * generator.normal(size=(3, 3))
    others = (0.5 * generator.normal(size=shape) for shape in (3, 3, (3, 3), (3, 3)))
    return WarpedParams(*map(jnp.asarray, (generator.normal(size=3), factor, *others)))


def test_standardize_undoes_transform(params):
    noise = jnp.asarray(2 * np.random.default_rng(3).normal(size=(50, 3)))
    z = jax.vmap(FACTORS.transform, (None, 0))(params, noise)
    np.testing.assert_allclose(jax.vmap(FACTORS.standardize, (None, 0))(params, z), noise, rtol=1e-9, atol=1e-9)


def test_the_density_is_that_of_the_map(params):
    noise = jnp.asarray([0.3, -1.2, 2.0])
    z = FACTORS.transform(params, noise)
    log_determinant = np.linalg.slogdet(jax.jacobian(FACTORS.transform, argnums=1)(params, noise))[1]
    expected = norm.logpdf(noise).sum() - log_determinant
    np.testing.assert_allclose(FACTORS.log_density(params, z), [expected], rtol=1e-9)
    np.testing.assert_allclose(FACTORS.log_jacobian(params, z), [log_determinant], rtol=1e-9)


def test_the_entropy_is_exact(params):
    """One-dimensional integrals by adaptive quadrature, for each of the three entries."""

    def integrand(x: float, entry: int) -> float:
        tails = jax.tree.map(lambda leaf: leaf[entry], Tails.of(params))
        return norm.pdf(x) * float(tails.log_slope(jnp.asarray(x)))

    bent = sum(quad(integrand, -9, 9, args=(entry,), epsabs=1e-9)[0] for entry in range(3))
    straight = multivariate_normal(np.zeros(3), params.factor @ params.factor.T).entropy()
    np.testing.assert_allclose(FACTORS.entropy(params), [straight + bent], rtol=1e-8)


def test_straight_is_the_gaussian():
    factor = np.array([[1.0, 0.2], [0.5, 2.0]])
    piece, location, z = WarpedGaussian(1, 2), np.array([1.0, -1.0]), np.array([0.3, 0.7])
    params = piece.straight(jnp.asarray(location), jnp.asarray(factor))
    gaussian = multivariate_normal(location, factor @ factor.T)
    np.testing.assert_allclose(piece.log_density(params, jnp.asarray(z)), [gaussian.logpdf(z)], rtol=1e-9)
    np.testing.assert_allclose(piece.entropy(params), [gaussian.entropy()], rtol=1e-9)


@pytest.mark.parametrize(("both", "skewed"), [(1.3, 0.6), (0.7, -0.5)])
def test_tails_are_powers(both, skewed):
    """h grows as the power t + k on the right and t - k on the left, to within powers of the logarithm's inverse."""
    tails, far = Tails(jnp.asarray(both), jnp.asarray(skewed)), jnp.asarray([1e40, 1e80])
    for sign, power in ((1, both + skewed), (-1, both - skewed)):
        logs = jnp.log(jnp.abs(tails(sign * far)))
        np.testing.assert_allclose((logs[1] - logs[0]) / np.log(1e40), power, rtol=1e-3)


def test_natural_gradients_undo_the_fisher_information():
    """At the unbent q, where it is exact: scores on a grid of the noise of two entries."""
    piece = WarpedGaussian(1, 2)
    params = piece.straight(jnp.asarray([0.3, -0.2]), jnp.asarray([[1.5, 0.0], [0.4, 0.7]]))
    flat, unflatten = ravel_pytree(params)
    grid = jnp.stack(jnp.meshgrid(NODES, NODES), axis=-1).reshape(-1, 2)
    weights = np.outer(NODE_WEIGHTS, NODE_WEIGHTS).reshape(-1)
    points = jax.vmap(piece.transform, (None, 0))(params, grid)
    scores = np.asarray(
        jax.vmap(jax.grad(lambda one, z: piece.log_density(unflatten(one), z)[0]), (None, 0))(flat, points)
    )
    fisher = (scores * weights[:, None]).T @ scores
    below = jnp.asarray([[1.0, 0.0], [1.0, 1.0]])
    moves = piece.straight(jnp.ones(2), params.factor @ below)._replace(
        skew=jnp.asarray([0.3, -1.0]), tail=jnp.asarray([0.5, 0.2]), scales=0.7 * below - 0.7 * jnp.eye(2)
    )
    step = ravel_pytree(moves)[0]
    back = piece.natural(params, unflatten(jnp.asarray(fisher @ step)))
    np.testing.assert_allclose(ravel_pytree(back)[0], step, atol=1e-6)
    np.testing.assert_allclose(piece.squared_length(params, moves), [step @ fisher @ step], rtol=1e-6)


def test_path_is_the_draw_itself(params):
    z = jnp.asarray([0.4, 0.1, -0.3])
    np.testing.assert_allclose(FACTORS.path(params, z), z, atol=1e-9)


def test_mini_batches_are_refused_with_what_to_do():
    rows = {"y": np.random.default_rng(0).normal(1.0, 1.0, size=200)}
    model = isvi.Model(
        {"mean": isvi.real()},
        lambda z: -0.5 * z["mean"] ** 2 / 100,
        lambda z, batch: jnp.sum(-0.5 * (batch["y"] - z["mean"]) ** 2),
    )
    with pytest.raises(isvi.ConfigurationError, match=r"1 entries and 4 mini-batches. Use FullRank\(\)"):
        isvi.fit(model, rows, family=isvi.Warped(), batch_size=50, progress=False)
