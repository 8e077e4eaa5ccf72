"""Keeping runs, choosing settings, and telling what holds."""

import math

import pytest

from benchmarks import problem as problem_module
from benchmarks import problems
from benchmarks.figure import draw
from benchmarks.measure import Point, Run, Setting, Time
from benchmarks.peers import rivals_budget
from benchmarks.problem import Judged
from benchmarks.report import Cost, collect, write_report
from benchmarks.rivals import STOCHASTIC, Racer
from benchmarks.store import Store
from benchmarks.tuning import tune


@pytest.fixture
def problem(tmp_path, monkeypatch):
    monkeypatch.setattr(problem_module, "CACHE", tmp_path / "cache")
    return problems.poisson_regression(rows=100, dim=2, batch_size=50)


def run_to(problem, gap: float, gradients: int, setting: str = "") -> Run:
    def judged(gap: float) -> Judged:
        return Judged(problem.optimum[1] - gap * problem.latents, 10 * gap, 1 - 4 * gap, 1 + 4 * gap)

    return Run(
        [Point(10, Time(0.1, 0.2), judged(5.0)), Point(gradients, Time(1.0, gradients / 100), judged(gap))],
        Time(1.0, 1.5),
        setting,
        "converged",
    )


@pytest.fixture
def store(tmp_path, problem) -> Store:
    store = Store(tmp_path / "results")
    for seed in range(3):
        store.add(problem, "isvi default", seed, 1000, run_to(problem, 0.001, 100 + seed))
        store.add(problem, "NumPyro full rank", seed, 3000, run_to(problem, 0.05, 3000))
    store.add(problem, "L-BFGS + Laplace", 0, 3000, run_to(problem, 0.009, 400))
    return store


def test_runs_are_read_back(store, problem):
    assert len(store.runs()) == 7
    assert store.has("f", "NumPyro full rank", 2)
    assert not store.has("f", "NumPyro full rank", 3)
    run = store.runs()[0]
    assert run.reached(0.01).gradients == 100
    assert run.reached(1e-9) is None
    assert run.gaps()[-1] == pytest.approx(0.001, abs=1e-5)
    assert run.points[-1].judged[1:] == pytest.approx((0.01, 0.996, 1.004))


def test_runs_can_be_forgotten(store):
    store.forget(["f"], ["isvi default"])
    assert {run.rival for run in store.runs()} == {"NumPyro full rank", "L-BFGS + Laplace"}


def test_costs_are_bounds_where_the_level_was_not_reached(store):
    (results,) = collect(store)
    assert results.gradients("isvi default", 0.01).median == 101
    assert results.gradients("NumPyro full rank", 0.01).at_least == 3000
    assert results.gradients("NumPyro full rank", 0.01).text() == "> 3,000"
    assert Cost((1.0, 2.0, math.inf), 5.0).text() == "2 (1 - never)"


def test_report_and_figure_are_written(store):
    write_report(store, cores=2)
    draw(store)
    text = (store.folder / "peers.md").read_text()
    assert "2 cores" in text
    assert "(e) everything; (f) NumPyro low rank, NumPyro mean field, Pathfinder." in text
    assert ">= 1/29.7: not shown (1/50)" in text
    assert "| (f) | 3 | converged: 3 | 101 (100 - 102) | 0.001 (0.001 - 0.001) | 0.010 | 1.00 - 1.00 | yes |" in text
    assert "50.5 / 200.0: holds" in text
    assert {"peers.png", "peers.svg"} <= {path.name for path in store.folder.iterdir()}


def test_a_false_claim_is_told(store, problem):
    store.add(problem, "isvi default", 3, 1000, run_to(problem, 0.02, 100))
    write_report(store, cores=2)
    assert "| 0.200 | 0.92 - 1.08 | **1 are not** |" in (store.folder / "peers.md").read_text()


def test_rivals_may_use_fifty_times_as_much(store, problem):
    assert rivals_budget(problem, store) == 50 * 101
    store.forget(["f"], ["isvi default"])
    assert rivals_budget(problem, store) == 30_000


def test_tuning_is_kept_and_used_again(tmp_path, problem):
    store, racer = Store(tmp_path), Racer(problem, STOCHASTIC["NumPyro low rank"](problem))
    first = tune(problem, "NumPyro low rank", racer, 300, store)
    assert isinstance(first[0], Setting)
    assert len(store.tuning()["f", "NumPyro low rank"]) >= 10
    assert tune(problem, "NumPyro low rank", racer, 300, store) == first
