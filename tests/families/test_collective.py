"""What many entries share, against matrices written out."""

import jax
import jax.numpy as jnp
import numpy as np

import isvi
from isvi.families.collective import SHARED, SQUARES_VARIANCE, Collective, draw_collective

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


def test_draws_have_the_moments_that_they_say() -> None:
    """Of 4,000 pairs: variances of the small latents' entries within 5 standard errors, sqrt(v / 4,000) = 0.008 each: a
    failure by chance has probability below 1e-5. Means over 1,700 entries of the others are far more certain."""
    approximation, shared, location, precision, _ = prepared()
    params = approximation.init(jnp.asarray(location), jnp.asarray(precision**-0.5))
    keys = jax.random.split(jax.random.key(1), 4000)
    draws = jax.jit(jax.vmap(lambda key: draw_collective(key, approximation, shared, params, 2)))(keys)
    np.testing.assert_allclose(draws.mean(axis=1), np.broadcast_to(location, draws[:, 0].shape), atol=1e-4)
    noise = np.asarray(0.5 * (draws[:, 0] - draws[:, 1]) * precision**0.5, float)
    small = [entry for entry in approximation.coordinates.entries if entry.name in ("slopes", "scale")]
    rows = np.concatenate([np.arange(entry.start, entry.stop) for entry in small])
    np.testing.assert_allclose((noise[:, rows] ** 2).mean(axis=0), 1, atol=5 * 0.008)
    np.testing.assert_allclose((noise[:, rows] ** 4).mean(axis=0), 1 + SQUARES_VARIANCE, atol=0.1)
    large = np.setdiff1d(np.arange(len(location)), rows)
    # Twice SHARED^2, for shift and spread, on top of its own variance, on average over the entries.
    assert abs((noise[:, large] ** 2).mean() - 1 - 2 * SHARED**2) < 0.02
