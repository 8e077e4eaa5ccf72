"""What many entries share, against matrices written out."""

import jax
import jax.numpy as jnp
import numpy as np

import isvi
from isvi.families.collective import Collective, draw_collective

LATENTS = {
    "slopes": isvi.real(3),
    "effects": isvi.real(500),
    "loadings": isvi.real(200, 2),
    "wide": isvi.real(30, 40),
    "scale": isvi.positive(),
}


def prepared() -> tuple[isvi.Approximation, Collective, np.ndarray, np.ndarray, np.ndarray]:
    """The directions, with V written out for some location and precisions."""
    approximation = isvi.approximate(isvi.MeanField(), LATENTS)
    shared = Collective.of(approximation.coordinates)
    random = np.random.default_rng(0)
    location = random.normal(size=approximation.dim).astype(np.float32)
    precision = random.uniform(0.5, 20.0, size=approximation.dim).astype(np.float32)
    spread = shared.spread(jnp.asarray(location), jnp.asarray(precision))
    matrix = np.stack(
        [np.asarray(shared.up(jnp.asarray(one), spread)) for one in np.eye(shared.size, dtype=np.float32)]
    )
    return approximation, shared, location, precision, matrix.T


def test_small_latents_by_entry_and_large_ones_by_shift_and_spread() -> None:
    """4 entries; a shift and a spread for the effects, for both columns of the loadings, for all of a wide matrix."""
    approximation, shared, location, _, matrix = prepared()
    assert (shared.small, shared.large, shared.size) == (4, 4, 12)
    for name, directions in (("slopes", 3), ("effects", 2), ("loadings", 4), ("wide", 2), ("scale", 1)):
        entry = next(one for one in approximation.coordinates.entries if one.name == name)
        assert (np.abs(matrix[entry.start : entry.stop]).sum(axis=0) > 0).sum() == directions
    effects = next(one for one in approximation.coordinates.entries if one.name == "effects")
    part = matrix[effects.start : effects.stop]
    shift, spread = part[:, np.abs(part).sum(axis=0) > 0].T
    np.testing.assert_array_equal(shift, 1)
    moved = location[effects.start : effects.stop]
    np.testing.assert_allclose(spread, moved - (moved - spread).mean(), atol=1e-5)


def test_down_is_the_transpose_of_up_and_directions_are_orthogonal() -> None:
    _, shared, location, precision, matrix = prepared()
    spread = shared.spread(jnp.asarray(location), jnp.asarray(precision))
    np.testing.assert_allclose(shared.down(jnp.asarray(location), spread), matrix.T @ location, rtol=1e-3, atol=1e-3)
    gram = matrix.T.astype(float) @ (precision[:, None] * matrix.astype(float))
    squares = np.asarray(shared.squares(jnp.asarray(precision), spread))
    np.testing.assert_allclose(gram / np.sqrt(np.outer(squares, squares)), np.eye(shared.size), atol=1e-4)


def test_draws_have_the_moments_of_q() -> None:
    """20,000 pairs. Variances are means of squares with variance 2: within 5 standard errors of 0.01 for each of 1,900
    entries, shared moves or not, so that a failure by chance has probability below 0.002. Fourth powers of the small
    latents' entries have mean 3 and variance 20: within 5 of 0.03."""
    approximation, shared, location, precision, _ = prepared()
    params = approximation.init(jnp.asarray(location), jnp.asarray(precision**-0.5))
    keys = jax.random.split(jax.random.key(1), 20_000)

    @jax.jit
    def sums(keys: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        def one(key: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
            draws = draw_collective(key, approximation, shared, params, 2)
            noise = 0.5 * (draws[0] - draws[1]) * precision**0.5
            return jnp.abs(draws.mean(axis=0) - location), noise**2, noise**4

        return jax.tree.map(lambda leaf: leaf.mean(axis=0), jax.lax.map(one, keys, batch_size=500))

    off, squares, fourth = (np.asarray(one) for one in sums(keys))
    assert off.max() < 1e-5
    np.testing.assert_allclose(squares, 1, atol=0.05)
    small = [entry for entry in approximation.coordinates.entries if entry.name in ("slopes", "scale")]
    rows = np.concatenate([np.arange(entry.start, entry.stop) for entry in small])
    np.testing.assert_allclose(fourth[rows], 3, atol=0.16)
