"""Every rival runs, and the runs are what they say."""

import math
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import isvi
from benchmarks import full_batch, problem, problems, rivals
from benchmarks.measure import Point, Run, Setting, Time, checkpoint_counts
from benchmarks.problem import Judged, Problem
from benchmarks.rivals import STOCHASTIC, Racer


@pytest.fixture(scope="module")
def toy(tmp_path_factory) -> Problem:
    problem.CACHE = tmp_path_factory.mktemp("cache")
    return problems.linear_regression(rows=250, dim=3, batch_size=60)


def test_default_is_isvi_fit(toy):
    """Recorded along the way or not, ``isvi.fit`` ends at the same parameters, those of a full-rank Gaussian,
    and has taken as many gradients."""
    run = rivals.run_default(toy, seed=1)
    fit = isvi.fit(toy.model, toy.data, seed=1, batch_size=60, progress=False)
    q = fit.approximation
    assert run.points[-1].gradients == fit.gradients
    assert np.allclose(run.points[-1].judged, toy.judge(q.location(fit.params), q.factor(fit.params)), atol=1e-6)
    assert run.status == fit.status.kind
    assert [point.gradients for point in run.points] == sorted(point.gradients for point in run.points)


def test_times_between_rows_are_in_proportion():
    notes = rivals.Notes(kept=[(10, Time(1.0, 2.0), None), (20, Time(3.0, 5.0), None)])
    assert [notes.at(gradients) for gradients in (0, 5, 10, 15, 20)] == [
        Time(0.0, 0.0),
        Time(0.5, 1.0),
        Time(1.0, 2.0),
        Time(2.0, 3.5),
        Time(3.0, 5.0),
    ]


@pytest.mark.parametrize("name", STOCHASTIC)
def test_rival_improves(toy, name):
    racer = Racer(toy, STOCHASTIC[name](toy))
    run = racer.run(Setting(0.03, 400.0), seed=0, budget=400, checkpoints=3)
    assert run.points[-1].gradients >= 400
    assert run.points[-1].judged.elbo > run.points[0].judged.elbo
    assert run.compilation.cpu > 0
    assert racer.run(Setting(0.03, 20.0), seed=1, budget=20, checkpoints=1).points[-1].gradients == 20


@pytest.mark.parametrize("name", STOCHASTIC)
def test_rivals_start_where_isvi_does(toy, name):
    """In this library's order of the latents, which is not NumPyro's."""
    rival = STOCHASTIC[name](toy)
    location = jnp.arange(1.0, 1.0 + toy.latents)
    mean, factor = rival.gaussian(rival.init(location, toy.dataset(2), 0.1))
    assert np.allclose(mean, location, atol=1e-5)
    assert np.allclose(factor @ factor.T, 0.01 * np.eye(toy.latents), atol=1e-5)


@pytest.mark.parametrize("name", STOCHASTIC)
def test_a_rival_that_diverged_is_judged(toy, name):
    rival = STOCHASTIC[name](toy)
    state = rival.init(jnp.ones(toy.latents), toy.dataset(0), 0.1)
    state = jax.tree.map(lambda leaf: leaf * jnp.nan if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf, state)
    assert toy.judge(*rival.gaussian(state)).elbo == -math.inf


def test_numpyro_sees_the_same_elbo(toy):
    """NumPyro's own estimate over all rows in one batch, of a state whose Gaussian correlates the latents, against the
    evaluator: two-sided at five standard errors, a false failure once in two million. A wrong order of latents, or a
    covariance read wrongly, would not agree."""
    whole = replace(toy, batch_size=len(toy.data["y"]))
    rival = STOCHASTIC["NumPyro full rank"](whole)
    dataset = whole.dataset(0)
    state = rival.init(jnp.asarray(toy.optimum[0].mean, jnp.float32), dataset, 0.1)
    for step in range(30):
        state = rival.step(Setting(0.1).traced(), jax.random.key(step), state, dataset.batch(0))
    keys = jax.random.split(jax.random.key(1), 500)
    losses = jax.vmap(lambda key: rival.svi.evaluate(state._replace(rng_key=key), dataset.batch(0)))(keys)
    standard_error = np.std(losses, ddof=1) / np.sqrt(len(losses))
    mean, factor = rival.gaussian(state)
    assert np.abs(np.tril(factor, -1)).max() > 0.01
    assert abs(toy.judge(mean, factor).elbo + np.mean(losses)) < 5 * standard_error


def test_sweep_agrees_with_a_run(toy):
    """Settings side by side compute what one setting alone does."""
    racer = Racer(toy, STOCHASTIC["NumPyro full rank"](toy))
    settings = [Setting(0.01), Setting(0.03, 60.0)]
    together = racer.sweep(settings, seed=0, budget=60)
    alone = racer.run(settings[1], seed=0, budget=60, checkpoints=2)
    assert together[1].points[-1].judged.elbo == pytest.approx(alone.points[-1].judged.elbo, rel=1e-4)


def test_laplace_finds_the_mode(toy):
    run = full_batch.run_laplace(toy, seed=0, budget=5000)
    assert run.best_gap(toy) < 0.1
    assert all(point.gradients % toy.num_batches == 0 for point in run.points)


def test_laplace_has_the_hessian(toy):
    """Against automatic differentiation twice, at a place that is not the mode."""
    z = toy.optimum[0].mean + 0.5 * toy.optimum[0].sd
    with jax.enable_x64(True):
        hessian = jax.hessian(lambda z: toy.target.exact_values(z[None], toy.dataset(0))[0])(jnp.asarray(z))
    factor = full_batch.laplace_factor(toy, z)
    assert np.allclose(factor @ factor.T @ -np.asarray(hessian), np.eye(toy.latents), atol=1e-3)


def test_pathfinder_runs(toy):
    pytest.importorskip("blackjax", reason="Pathfinder needs blackjax: pip install blackjax")
    assert math.isfinite(full_batch.run_pathfinder(toy, seed=0, budget=5000).best_gap(toy))


def test_best_gap_ignores_what_is_not_finite(toy):
    worse, nothing = Judged(toy.optimum[1] - toy.latents, 0.0, 1.0, 1.0), Judged(-math.inf, 0.0, 1.0, 1.0)
    run = Run([Point(1, Time(), worse), Point(2, Time(), nothing)], Time())
    assert run.best_gap(toy) == pytest.approx(1.0)


def test_checkpoints_end_with_the_budget():
    counts = checkpoint_counts(30_000, 45)
    assert counts[-1] == 30_000
    assert counts == sorted(set(counts))
