"""Every rival runs, and the runs are what they say."""

import math

import numpy as np
import pytest

import isvi
from benchmarks import full_batch, problems, rivals
from benchmarks.measure import Point, Run, Setting, Time, checkpoint_counts
from benchmarks.problems import Problem
from benchmarks.rivals import STOCHASTIC, Racer

NEEDS = {"BlackJAX meanfield_vi": "blackjax"}


@pytest.fixture(scope="module")
def toy(tmp_path_factory) -> Problem:
    problems.CACHE = tmp_path_factory.mktemp("cache")
    return problems.linear_regression(rows=250, dim=3, batch_size=60)


def test_default_is_isvi_fit(toy):
    """Recorded along the way or not, ``isvi.fit`` ends at the same parameters."""
    run = rivals.run_default(toy, seed=1)
    fit = isvi.fit(toy.model, toy.data, family=isvi.MeanField(), seed=1, batch_size=60, progress=False)
    assert run.points[-1].gradients == fit.gradients
    assert run.points[-1].elbo == pytest.approx(toy.evaluate(*fit.params), abs=1e-6)
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
def test_stochastic_rival_improves(toy, name):
    if name in NEEDS:
        pytest.importorskip(NEEDS[name], reason=f"{name} needs {NEEDS[name]}: pip install {NEEDS[name]}")
    racer = Racer(toy, STOCHASTIC[name](toy))
    run = racer.run(Setting(0.03, 400.0), seed=0, budget=400, checkpoints=3)
    assert run.points[-1].gradients >= 400
    assert run.points[-1].elbo > run.points[0].elbo
    assert racer.compilation.cpu > 0


def test_rivals_start_alike(toy):
    location = rivals.start_location(toy, seed=2)
    for name in ("NumPyro SVI", "isvi SGD"):
        rival = STOCHASTIC[name](toy)
        loc, log_scale = rival.params(rival.init(location, toy.dataset(2), 0.1))
        assert np.allclose(loc, location, atol=1e-5)
        assert np.allclose(log_scale, math.log(0.1), atol=1e-5)


def test_sweep_agrees_with_a_run(toy):
    """Settings side by side compute what one setting alone does."""
    racer = Racer(toy, STOCHASTIC["isvi SGD"](toy))
    settings = [Setting(0.01), Setting(0.03, 60.0)]
    together = racer.sweep(settings, seed=0, budget=60)
    alone = racer.run(settings[1], seed=0, budget=60, checkpoints=2)
    assert together[1].points[-1].elbo == pytest.approx(alone.points[-1].elbo, rel=1e-4)


def test_laplace_finds_the_mode(toy):
    run = full_batch.run_laplace(toy, seed=0, budget=5000)
    assert run.best_gap(toy) < 0.1
    assert all(point.gradients % toy.num_batches == 0 for point in run.points)


def test_curvature_from_the_evaluator_agrees_with_the_hessian(toy):
    loc = toy.optimum[0]
    assert np.allclose(full_batch._exact_curvature(toy, loc), full_batch._summed_curvature(toy, loc), rtol=1e-3)


def test_pathfinder_runs(toy):
    pytest.importorskip("blackjax", reason="Pathfinder needs blackjax: pip install blackjax")
    assert math.isfinite(full_batch.run_pathfinder(toy, seed=0, budget=5000).best_gap(toy))


def test_best_gap_ignores_what_is_not_finite(toy):
    best = toy.optimum[2]
    run = Run([Point(1, Time(), best - toy.latents), Point(2, Time(), math.nan)], Time())
    assert run.best_gap(toy) == pytest.approx(1.0)


def test_checkpoints_end_with_the_budget():
    counts = checkpoint_counts(30_000, 45)
    assert counts[-1] == 30_000
    assert counts == sorted(set(counts))
