"""The memory for many latents: its sums against all records, its curvature against matrices, its ends against truth."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.stats import norm

import isvi
from isvi.auto.curvature.coarse import Coarse
from isvi.auto.window import Sizes, Window
from isvi.families.collective import Collective, draw_collective
from isvi.families.low_rank import LowRankGaussian
from isvi.memory.record import Record


def quadratic(dim: int, seed: int = 0) -> tuple[isvi.Approximation, Collective, np.ndarray]:
    """A latent of 3 entries and one of ``dim``, and a precision in which all of the large ones lean on the small."""
    approximation = isvi.approximate(isvi.MeanField(), {"a": isvi.real(3), "b": isvi.real(dim)})
    diagonal = np.random.default_rng(seed).uniform(1, 3, size=dim + 3)
    matrix = np.diag(diagonal)
    matrix[0, 3:] = matrix[3:, 0] = 0.9 * diagonal[3:]
    matrix[0, 0] = 1.0 * diagonal[3:].sum()
    return approximation, Collective.of(approximation.coordinates), matrix


def record_at(draws: jax.Array, gradient: jax.Array, batch: int) -> Record:
    zeros = jnp.zeros(len(draws))
    return Record(draws, jnp.zeros((len(draws), 0)), zeros, gradient, jnp.int32(batch), jnp.float32(0.1))


@pytest.mark.parametrize("num_batches", [1, 7, 20, 53])
def test_the_window_is_the_mean_over_the_newest_record_of_every_mini_batch(num_batches: int) -> None:
    """At the end of every chunk, in passes that do not divide into chunks: against all records, kept one by one."""
    _, shared, _ = quadratic(100)
    sizes, random, dim = Sizes(num_batches), np.random.default_rng(0), 103
    first = record_at(jnp.zeros((2, dim)), jnp.zeros((2, dim)), 0)
    window = Window.none(sizes, shared.size, first)
    add = jax.jit(
        lambda window, count, record: window.add(
            sizes, shared, jnp.ones(dim), count, jnp.float32(1), record, jnp.array(True)
        )
    )
    kept: list[tuple[np.ndarray, np.ndarray]] = []
    location = random.normal(size=dim)
    for count in range(2 * sizes.records + 3):
        record = record_at(
            jnp.asarray(np.tile(location, (2, 1)), jnp.float32),
            jnp.asarray(random.normal(size=(2, dim)), jnp.float32),
            0,
        )
        window = add(window, jnp.int32(count), record)
        kept.append((location, np.asarray(record.gradient).mean(axis=0)))
        if bool(sizes.ends(jnp.int32(count + 1))):
            point, gradient, number = window.level()
            newest = kept[-sizes.records :]
            assert number == len(newest)
            np.testing.assert_allclose(point, np.mean([one for one, _ in newest], axis=0), atol=1e-5)
            np.testing.assert_allclose(gradient, np.mean([one for _, one in newest], axis=0), atol=1e-5)
            location = random.normal(size=dim)  # parameters move here, and nowhere else


def test_curvature_along_a_flat_direction_is_found_among_steep_ones() -> None:
    """An entry that all others lean on, so that moving it against them is nearly flat. 100 pairs, exact differences:
    the eigenvalues along the collective directions against those of the matrix."""
    approximation, shared, matrix = quadratic(300)
    diagonal = jnp.asarray(np.diagonal(matrix), jnp.float32)
    params = approximation.init(jnp.linspace(-1, 1, 303), diagonal**-0.5)
    sizes, location = Sizes(10), approximation.location(params)
    window = Window.none(sizes, shared.size, record_at(jnp.zeros((2, 303)), jnp.zeros((2, 303)), 0))

    @jax.jit
    def gathered(window: Window) -> Window:
        def body(count: jax.Array, window: Window) -> Window:
            draws = draw_collective(jax.random.key(count), approximation, shared, params, 2)
            gradient = -(draws - 1) @ jnp.asarray(matrix, jnp.float32)
            record = record_at(draws, gradient, 0)
            return window.add(sizes, shared, diagonal, count, jnp.float32(1), record, jnp.array(True))

        return jax.lax.fori_loop(0, 100, body, window)

    window = gathered(window)
    np.testing.assert_allclose(window.pairs.products / window.pairs.squares, diagonal, rtol=0.3)
    curvature = Coarse.fitted(shared, window.pairs, diagonal, location)
    basis = np.stack([np.asarray(shared.up(one, curvature.spread)) for one in jnp.eye(shared.size)], axis=1)
    exact = np.linalg.eigvalsh(basis.T @ matrix @ basis / np.outer(curvature.lengths, curvature.lengths))
    assert exact[0] < 0.2 < 1.5 < exact[-1]
    np.testing.assert_allclose(curvature.values, exact, rtol=0.15)


def regression(dim: int, rows: int) -> tuple[isvi.Model, dict[str, np.ndarray], np.ndarray, np.ndarray]:
    """Rows that belong to groups, with an intercept, unit noise and normal priors: exact mean and precision."""
    random = np.random.default_rng(0)
    group = random.integers(0, dim, size=rows)
    y = (3.0 + random.normal(size=dim)[group] + random.normal(size=rows)).astype(np.float32)
    model = isvi.Model(
        latents={"intercept": isvi.real(), "effects": isvi.real(dim)},
        log_prior=lambda z: norm.logpdf(z["intercept"], scale=10.0) + jnp.sum(norm.logpdf(z["effects"])),
        log_likelihood=lambda z, b: jnp.sum(norm.logpdf(b["y"], z["intercept"] + z["effects"][b["group"]])),
    )
    counts, sums = np.bincount(group, minlength=dim), np.bincount(group, y, minlength=dim)
    precision = np.diag(np.concatenate([[rows + 0.01], counts + 1.0]))
    precision[0, 1:] = precision[1:, 0] = counts
    mean = np.linalg.solve(precision, np.concatenate([[sums.sum()], sums]))
    return model, {"y": y, "group": group.astype(np.int32)}, mean, precision


def test_an_intercept_against_a_thousand_groups_is_right_where_it_settles() -> None:
    """The posterior is Gaussian: exact mean, exact mean-field precisions. The intercept against the mean of all groups,
    together, is known to sqrt(1 / groups); it must be within a tenth of that, as no collective direction may be off by
    more. Precisions come from a few hundred pairs of equal squares."""
    model, data, mean, precision = regression(1200, 20_000)
    fit = isvi.fit(model, data, batch_size=500, seed=0, progress=False)
    assert fit.status.kind == "settled"
    location = np.asarray(fit.params.loc, float)
    along = np.concatenate([[1.0], np.full(1200, -1.0)])
    sd = (along @ precision @ along) ** -0.5
    assert abs(along @ precision @ (location - mean)) * sd**2 < 0.1 * sd
    off = (location - mean) * np.diagonal(precision) ** 0.5
    assert 0.5 * np.mean(off[1:] ** 2) < 0.003
    ratio = np.exp(np.asarray(fit.params.log_scale, float)) * np.diagonal(precision) ** 0.5
    assert 0.25 * np.mean((2 * np.log(ratio)) ** 2) < 0.003


def test_low_rank_has_what_is_collective_beyond_a_thousand() -> None:
    """The same, where q has a direction for the intercept against all effects: its sd, five times what independent
    Gaussians have, is the best one's. Along a flat direction the curvature is known from a few hundred pairs next to
    steep ones, to a tenth or better (an sd to half of that), and so is what the effects share of it."""
    model, data, mean, precision = regression(1200, 20_000)
    fit = isvi.fit(model, data, family=isvi.LowRank(1), batch_size=500, seed=0, progress=False)
    assert fit.status.kind == "settled"
    piece = LowRankGaussian(1, 1201, 1)
    factor = jnp.asarray(np.linalg.cholesky(np.linalg.inv(precision)), jnp.float32)
    best = np.asarray(piece.scale(piece.with_factor(jnp.zeros(1201), factor)), float)
    off = (np.asarray(fit.params.loc, float) - mean) / best
    ratio = np.asarray(fit.approximation.scale(fit.params), float) / best
    assert best[0] > 3 * precision[0, 0] ** -0.5
    assert abs(off[0]) < 0.1
    assert abs(np.log(ratio[0])) < 0.1
    assert np.sqrt(np.mean(np.log(ratio[1:]) ** 2)) < 0.1


def test_low_rank_before_anything_is_known_is_a_diagonal() -> None:
    model = isvi.Model({"a": isvi.real(), "b": isvi.real(1100)}, lambda z: -0.5 * jnp.sum((z["b"] - z["a"]) ** 2))
    fit = isvi.fit(model, family=isvi.LowRank(2), budget=6, progress=False)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(fit.params))
    assert not np.any(fit.params.factor)


def test_memory_does_not_grow_with_the_number_of_mini_batches() -> None:
    _, shared, _ = quadratic(1000)
    record = record_at(jnp.zeros((2, 1003)), jnp.zeros((2, 1003)), 0)
    sizes = [
        sum(leaf.size for leaf in jax.tree.leaves(Window.none(Sizes(n), shared.size, record))) for n in (1, 20, 5000)
    ]
    assert len(set(sizes)) == 1
    assert sizes[0] < 50 * 1003


@pytest.mark.parametrize(("family", "warns"), [(isvi.Block(), True), (isvi.MeanField(), False)])
def test_blocks_beyond_a_thousand_say_that_they_learn_no_correlation(family, warns, caplog) -> None:
    model = isvi.Model(
        {"pair": isvi.real(2), "w": isvi.real(1100)},
        lambda z: norm.logpdf(z["w"]).sum() + norm.logpdf(z["pair"][0]) + norm.logpdf(z["pair"].sum(), 0, 0.3),
    )
    isvi.fit(model, family=family, budget=20, progress=False)
    assert ("the correlations inside of blocks are not learned" in caplog.text) == warns
