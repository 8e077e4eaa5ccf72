"""Entries of which few rows know: sites against quadrature, and fits against an optimum computed row by row."""

import jax.numpy as jnp
import numpy as np
import pytest
from jax.nn import log_sigmoid
from jax.scipy.stats import norm

import isvi
from isvi.fitting.afterwards import few_rows
from isvi.fitting.afterwards.sites import Moments, Sites, Told

NODES, SHARES = np.polynomial.hermite_e.hermegauss(41)
SHARES = SHARES / SHARES.sum()
PRIOR = np.array([5.0**2, *[2.0**2] * 2, *[3.0**2] * 6])


def sigmoid(t: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-t))


def averages(mean: np.ndarray, sd: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of sigmoid(t) and its derivative over Gaussians t."""
    values = sigmoid(mean[..., None] + sd[..., None] * NODES)
    return values @ SHARES, (values * (1 - values)) @ SHARES


def test_a_site_beside_a_parabola():
    """Thirty rows that all say no, of a level, beside a parabola that holds the intercept. The best Gaussian in both is
    also found by plain iteration over two dimensions, with 41 nodes."""
    rest, slope, pattern, rows = np.diag([400.0, 1 / 9]), np.array([-800.0, 0.0]), np.array([[1.0, 1.0]]), 30

    def ask(q: Moments, patterns: np.ndarray) -> Told:
        t = patterns @ q.mean
        sd = np.sqrt(np.einsum("rd,de,re->r", patterns, q.covariance, patterns))
        level, curvature = averages(t, sd)
        return Told(-rows * level, rows * curvature)

    start = Moments(np.array([-2.0, -1.0]), np.diag([1 / 400, 0.5]))
    q, arrived = Sites(pattern, rest, slope).fitted(start, ask, 60)
    assert arrived
    mean, covariance = start
    for _ in range(2000):
        told = ask(Moments(mean, covariance), pattern)
        covariance = np.linalg.inv(
            0.9 * np.linalg.inv(covariance) + 0.1 * (rest + told.curvatures * pattern.T @ pattern)
        )
        mean = mean + 0.1 * covariance @ (slope - rest @ mean + pattern[0] * told.slopes[0])
    sd = np.sqrt(np.diagonal(covariance))
    # It stops at steps of 0.01 that shrink by a third or faster.
    np.testing.assert_allclose((q.mean - mean) / sd, 0, atol=0.02)
    np.testing.assert_allclose(q.sd / sd, 1, atol=0.02)


def test_a_site_that_says_what_was_thought_changes_nothing():
    likelihood = np.array([[50.0, 8.0], [8.0, 8.0]])
    precision = likelihood + np.diag([0.1, 0.2])
    q = Moments(np.array([1.0, -1.0]), np.linalg.inv(precision))
    sites = Sites.beside(q, likelihood, np.array([1]), lambda patterns: np.array([0.3]))
    np.testing.assert_allclose(sites.patterns, [[1.0, 1.0]])
    after, arrived = sites.fitted(q, lambda q, patterns: Told(np.array([0.3]), np.array([8.0])))
    assert arrived
    np.testing.assert_allclose(after.mean, q.mean, atol=1e-12)
    np.testing.assert_allclose(after.covariance, q.covariance, rtol=1e-12)


def rows_of(silent: int) -> dict[str, np.ndarray]:
    """20,000 rows of six levels; the last, of ``silent`` rows, has nothing but zeros."""
    random = np.random.default_rng(3)
    level = random.integers(0, 5, 20_000)
    level[random.choice(20_000, silent, replace=False)] = 5
    x = random.normal(size=(20_000, 2))
    logits = -1.5 + x @ [0.5, -0.2] + np.linspace(-0.5, 0.5, 6)[level]
    y = (random.random(20_000) < sigmoid(logits)) & (level < 5)
    return {"x": x.astype(np.float32), "level": level.astype(np.int32), "y": y.astype(np.float32)}


def regression() -> isvi.Model:
    return isvi.Model(
        {"a": isvi.real(), "b": isvi.real(2), "level": isvi.real(6)},
        lambda z: norm.logpdf(z["a"], 0, 5) + norm.logpdf(z["b"], 0, 2).sum() + norm.logpdf(z["level"], 0, 3).sum(),
        lambda z, rows: jnp.sum(
            log_sigmoid((2 * rows["y"] - 1) * (z["a"] + rows["x"] @ z["b"] + z["level"][rows["level"]]))
        ),
    )


def best(rows: dict[str, np.ndarray], independent: bool) -> Moments:
    """The best Gaussian, full-rank or of independent entries: expectations row by row, by 41 nodes."""
    design = np.column_stack([np.ones(len(rows["y"])), rows["x"], np.eye(6)[rows["level"]]]).astype(float)
    mean, covariance = np.zeros(9), np.diag(np.full(9, 0.01))
    for _ in range(200):
        sd = np.sqrt(np.einsum("nd,de,ne->n", design, covariance, design))
        level, curvature = averages(design @ mean, sd)
        precision = design.T @ (design * curvature[:, None]) + np.diag(1 / PRIOR)
        # Of independent entries the means still need the whole curvature to get there.
        mean = mean + 0.5 * np.linalg.solve(precision, design.T @ (rows["y"] - level) - mean / PRIOR)
        wanted = np.diag(np.diagonal(precision)) if independent else precision
        covariance = np.linalg.inv(0.5 * np.linalg.inv(covariance) + 0.5 * wanted)
    return Moments(mean, covariance)


@pytest.mark.parametrize("family", [None, pytest.param(isvi.MeanField(), marks=pytest.mark.slow)])
def test_a_level_that_only_says_no(family):
    """What "converged" promises, next to the optimum. Without a closer look the level's sd is too wide."""
    rows = rows_of(silent=80)
    fit = isvi.fit(regression(), rows, family=family, batch_size=200, progress=False)
    assert fit.status.kind == "converged"
    assert "no parabola along level[5], which took a closer look" in fit.status.message
    optimum = best(rows, independent=family is not None)
    # Sds of independent entries are tiny where intercept and levels trade off: a mean is judged by the posterior's.
    off = (np.asarray(fit.approximation.location(fit.params)) - optimum.mean) / best(rows, independent=False).sd
    ratios = np.asarray(fit.approximation.scale(fit.params)) / optimum.sd
    assert np.abs(off).max() < 0.1
    assert np.abs(np.log(ratios)).max() < np.log(1.1)


def test_where_all_rows_know_nothing_more_is_done_than_to_look():
    fit = isvi.fit(regression(), rows_of(silent=4_000) | {"y": rows_of(0)["y"]}, batch_size=200, progress=False)
    assert fit.status.kind == "converged"
    assert "no parabola" not in fit.status.message


def test_too_small_a_budget_is_said():
    rows = rows_of(silent=80)
    enough = isvi.fit(regression(), rows, batch_size=200, progress=False)
    fit = isvi.fit(regression(), rows, batch_size=200, budget=enough.gradients - 1500, progress=False)
    assert fit.status.kind == "budget"
    assert "not converged" in fit.status.message


def test_nodes_that_do_not_come_to_rest_leave_q_where_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = rows_of(silent=80)
    monkeypatch.setattr(few_rows, "BENDS", np.inf)
    before = isvi.fit(regression(), rows, batch_size=200, progress=False)
    assert before.status.kind == "converged"
    monkeypatch.undo()
    monkeypatch.setattr(few_rows, "LEAST_STEPS", 1)
    monkeypatch.setattr(few_rows, "MOST_STEPS", 1)
    fit = isvi.fit(regression(), rows, batch_size=200, progress=False)
    assert "did not come to rest; no parabola along level[5]" in fit.status.message
    for moment in (isvi.Fit.mean, isvi.Fit.sd):
        np.testing.assert_allclose(moment(fit)["level"], moment(before)["level"], rtol=1e-4)
