"""The memory for up to a thousand latents, on posteriors that are known in closed form."""

import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.stats import norm

import isvi
from isvi.auto.dense import Sizes, closest
from isvi.auto.dense.recorded import NEAR, level, moved_since, pairs_of, secants_of
from isvi.memory import Record
from tests.support.nearest import best as best_low_rank

LEVELS, SLOPES, ROWS, NOISE = 30, 3, 40_000, 0.7


def levels_and_intercept(seed: int = 0) -> tuple[isvi.Model, dict[str, np.ndarray]]:
    """Linear regression with an intercept and *all* levels of a category, the rarest of ten rows: only the priors say
    how the two share their sum."""
    rng = np.random.default_rng(seed)
    sizes = np.maximum(np.geomspace(ROWS, 10, LEVELS) / 4, 10).astype(int)
    level = rng.permutation(np.resize(np.repeat(np.arange(LEVELS), sizes), ROWS)).astype(np.int32)
    x = rng.normal(size=(ROWS, SLOPES))
    y = 1 + x @ np.arange(1.0, SLOPES + 1) + rng.normal(size=LEVELS)[level] + NOISE * rng.normal(size=ROWS)
    model = isvi.Model(
        {"a": isvi.real(), "b": isvi.real(SLOPES), "levels": isvi.real(LEVELS)},
        lambda z: norm.logpdf(z["a"], 0, 2) + norm.logpdf(z["b"]).sum() + norm.logpdf(z["levels"]).sum(),
        lambda z, r: norm.logpdf(r["y"], z["a"] + r["x"] @ z["b"] + z["levels"][r["level"]], NOISE).sum(),
    )
    return model, {"x": x.astype(np.float32), "level": level, "y": y.astype(np.float32)}


def posterior(data: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Mean and precision, in the order a, b, levels."""
    design = np.concatenate([np.ones((ROWS, 1)), data["x"], np.eye(LEVELS)[data["level"]]], axis=1)
    precision = design.T @ design / NOISE**2 + np.diag([0.25, *np.ones(SLOPES + LEVELS)])
    return np.linalg.solve(precision, design.T @ data["y"].astype(float) / NOISE**2), precision


@pytest.mark.parametrize("family", [None, isvi.MeanField(), isvi.LowRank(2)], ids=["default", "mean-field", "low-rank"])
def test_an_intercept_against_all_levels(family: isvi.MeanField | isvi.LowRank | None) -> None:
    """The promise of "converged": every mean within 0.1 sd, every sd within 10% of the family's optimum, along the flat
    direction too. The posterior is Gaussian, so that the optimum is known."""
    model, data = levels_and_intercept()
    fit = isvi.fit(model, data, family=family, batch_size=500)
    mean, precision = posterior(data)
    sd = np.sqrt(np.diagonal(np.linalg.inv(precision)))
    best = sd if family is None else np.diagonal(precision) ** -0.5
    if isinstance(family, isvi.LowRank):
        best = np.sqrt(np.diagonal(best_low_rank(precision, family.rank)))
    found = [
        np.concatenate([np.ravel(values[name]) for name in ("a", "b", "levels")]) for values in (fit.mean(), fit.sd())
    ]
    assert fit.status.kind == "converged"
    # The table's sds come from 10,000 draws: 0.7% of noise each.
    np.testing.assert_allclose((found[0] - mean) / sd, 0, atol=0.1)
    np.testing.assert_allclose(found[1] / best, 1, atol=0.12)


def test_who_runs_out_of_budget_is_told_which_latents_are_in_doubt() -> None:
    model, data = levels_and_intercept()
    fit = isvi.fit(model, data, batch_size=500, budget=300)
    assert fit.status.kind == "budget"
    assert "not converged" in fit.status.message
    assert "may be off" in fit.status.message


def test_the_default_family_is_as_full_as_can_be_afforded() -> None:
    model, data = levels_and_intercept()
    assert isvi.fit(model, data, budget=20).approximation.description == "a full-rank Gaussian"
    assert isvi.fit(model, data, budget=20, algorithm=isvi.SGD()).approximation.description == "independent Gaussians"
    large = isvi.Model({"w": isvi.real(1001)}, lambda z: jnp.sum(norm.logpdf(z["w"])))
    assert isvi.fit(large, budget=20).approximation.description == "independent Gaussians"


def test_low_rank_on_few_rows() -> None:
    """One mini-batch of few entries, which other families have another memory for. Polynomials: the posterior is
    Gaussian, and its correlations are up to 0.99, more than two directions have."""
    x = np.linspace(-1, 1, 300)
    design = x[:, None] ** np.arange(6)
    y = design.sum(axis=1) + np.random.default_rng(1).normal(size=300)
    model = isvi.Model(
        {"w": isvi.real(6)},
        lambda z: norm.logpdf(z["w"]).sum(),
        lambda z, rows: norm.logpdf(rows["y"], rows["x"] @ z["w"]).sum(),
    )
    precision = design.T @ design + np.eye(6)
    mean, best = np.linalg.solve(precision, design.T @ y), best_low_rank(precision, 2)
    fit = isvi.fit(model, {"x": design, "y": y}, family=isvi.LowRank(2))
    assert fit.status.kind == "converged"
    location, scale = fit.approximation.location(fit.params), fit.approximation.scale(fit.params)
    np.testing.assert_allclose((location - mean) / np.sqrt(np.diagonal(best)), 0, atol=0.1)
    np.testing.assert_allclose(scale / np.sqrt(np.diagonal(best)), 1, atol=0.1)


def test_low_rank_next_to_other_families() -> None:
    """The members are chosen piece by piece: what one of them has is not seen by the others."""
    family = isvi.approximate({"levels": isvi.LowRank(1)}, levels_and_intercept()[0].latents)
    _, precision = posterior(levels_and_intercept()[1])
    entries = {one.name: np.arange(one.start, one.stop) for one in family.coordinates.entries}
    places = {"a": np.arange(1), "b": np.arange(1, 1 + SLOPES), "levels": np.arange(1 + SLOPES, len(precision))}
    order = np.concatenate([places[name] for name in sorted(entries, key=lambda name: entries[name][0])])
    ordered = precision[np.ix_(order, order)]
    factor = closest(family, jnp.asarray(np.linalg.cholesky(np.linalg.inv(ordered)), jnp.float32))
    found = np.asarray(factor @ factor.T, float)
    at = entries["levels"]
    np.testing.assert_allclose(np.diagonal(np.linalg.inv(found)) / np.diagonal(ordered), 1, atol=0.01)
    wanted = best_low_rank(ordered[np.ix_(at, at)], 1)
    np.testing.assert_allclose(np.diagonal(found)[at] / np.diagonal(wanted), 1, atol=0.01)


def records_around(means: np.ndarray, gradients: np.ndarray) -> Record:
    """Records of one mirrored pair each, a standard deviation of 1 from these means."""
    signs = np.where(np.arange(means.shape[1]) % 2, 1.0, -1.0)
    draws = np.stack([means + signs, means - signs], axis=1)
    slots = len(means)
    return Record(
        draws=jnp.asarray(draws),
        log_density=jnp.zeros((slots, 2, 1)),
        log_joint=jnp.zeros((slots, 2)),
        gradient=jnp.asarray(np.stack([gradients, gradients], axis=1)),
        batch=jnp.zeros(slots, jnp.int32),
        share=jnp.full(slots, 1 / slots),
    )


def test_pairs_from_where_the_mean_was_elsewhere_count_less() -> None:
    """In one of fifty entries only: an average over entries does not see it."""
    means = np.zeros((4, 50))
    means[1:, 7] = [NEAR, 3 * NEAR, 3 * NEAR]
    records = records_around(means, np.zeros((4, 50)))
    shares = pairs_of(jnp.zeros(50), jnp.eye(50), records, jnp.ones(4, bool), records.gradient, enough=0.1).shares
    distances = (means**2).mean(axis=1)
    expected = 1 / (1 + distances**2) / (1 + np.array([0, 1, 9, 9]))
    np.testing.assert_allclose(shares, expected / expected.sum(), rtol=1e-4)


def test_so_many_pairs_as_are_needed_count_whatever_happened() -> None:
    means = np.zeros((40, 5))
    means[1:, 2] = 100
    records = records_around(means, np.zeros((40, 5)))
    found = pairs_of(jnp.zeros(5), jnp.eye(5), records, jnp.ones(40, bool), records.gradient, enough=10)
    assert found.number > 29


def test_the_level_is_averaged_back_to_where_the_mean_was_elsewhere() -> None:
    """Sixteen passes over two mini-batches, of which the level is the average of four; if the mean has come to where it
    is with the last three only, of three."""
    sizes = Sizes(num_batches=2, generations=16, level_generations=1, update_every=1, refit_every=1)
    made_at = jnp.arange(32)
    gradients = np.repeat(np.arange(16.0), 2)[:, None] * np.ones(3)
    for far, expected in ((0, np.mean([12, 13, 14, 15])), (13, np.mean([13, 14, 15]))):
        means = np.zeros((32, 3))
        means[: 2 * far, 1] = 2 * NEAR
        records = records_around(means, gradients)
        _, found = level(sizes, records, made_at, moved_since(records, jnp.zeros(3), jnp.eye(3)))
        np.testing.assert_allclose(found, expected)


def test_mini_batches_that_were_visited_again_tell_the_curvature_along_a_leap() -> None:
    """Two of four mini-batches were visited again after the mean had gone far: what their gradients changed by is the
    curvature times the way, whatever the others said, and whatever a mini-batch's own slope is."""
    sizes = Sizes(num_batches=4, generations=3, level_generations=1, update_every=1, refit_every=1)
    curvature, way, random = np.diag([2.0, 5.0, 1e-4]), np.array([0.1, -0.2, 30.0]), np.random.default_rng(0)
    slopes, means = random.normal(size=(4, 3)), np.zeros((12, 3))
    means[4:6] = way
    records = records_around(means, np.tile(slopes, (3, 1)) - means @ curvature)
    made_at = jnp.array([0, 1, 2, 3, 4, 5, *[-1] * 6])
    factor = jnp.diag(jnp.array([1.0, 0.5, 100.0]))
    pairs = pairs_of(jnp.zeros(3), factor, records, made_at >= 0, records.gradient, enough=1)
    secants = secants_of(sizes, jnp.zeros(3), factor, records, records.gradient, made_at, pairs)
    expected = np.asarray(factor) @ curvature @ way
    assert secants.shares[-1] > 0
    np.testing.assert_allclose(np.abs(secants.draws[-1]), np.abs(np.linalg.solve(factor, way)), rtol=1e-5)
    np.testing.assert_allclose(
        secants.answers[-1] * np.sign(secants.draws[-1, 2]), expected * np.sign(way[2]), rtol=1e-4
    )


def test_no_pass_but_whole_ones_counts_twice() -> None:
    """Once every mini-batch was visited again, the passes themselves are the secants."""
    sizes = Sizes(num_batches=2, generations=2, level_generations=1, update_every=1, refit_every=1)
    records = records_around(np.repeat([[0.0, 0.0], [1.0, 2.0]], 2, axis=0), np.zeros((4, 2)))
    made_at = jnp.arange(4)
    pairs = pairs_of(jnp.zeros(2), jnp.eye(2), records, made_at >= 0, records.gradient, enough=1)
    secants = secants_of(sizes, jnp.zeros(2), jnp.eye(2), records, records.gradient, made_at, pairs)
    assert secants.shares[-1] == 0
    np.testing.assert_allclose(secants.shares[:2].sum(), 1, rtol=1e-5)
