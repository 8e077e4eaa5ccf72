"""Trajectories, and coordinates that are stretched for them."""

import numpy as np
import pytest

import isvi
from isvi.core.coordinates import lay_out
from isvi.diagnosis.drift import JUDGED, TRAJECTORIES, Drift, carried_over
from isvi.diagnosis.dynamics import Kick, Place, Stride, move
from isvi.diagnosis.stretch import Stretched, stretched
from isvi.diagnosis.together import hidden
from isvi.results.weights.exploration import Frame

CHAINS = 400
TURN = np.pi / 2


def gaussian(precision):
    return lambda x: (-0.5 * np.sum(precision * x**2, axis=1), -precision * x)


def path_of(density, size, start=1.0, chains=CHAINS, leaps=40):
    """Where trajectories of a quarter turn end, from starts of this sd."""
    random = np.random.default_rng(0)
    place, ends = Place.at(start * random.normal(size=(chains, size)), density), []
    for _ in range(TRAJECTORIES):
        place, odds = move(density, place, Kick.draw(random, chains, size), Stride(TURN / leaps, leaps))
        ends.append(place.x)
    assert odds.mean() > 0.9
    return np.stack(ends)


def test_trajectories_leave_a_posterior_as_it_is():
    """400 chains from a standard normal: their variances stay 1 within five standard errors (false failure 1e-5)."""
    path = path_of(gaussian(1.0), 3)
    np.testing.assert_allclose(path.mean(axis=1), 0, atol=5 / np.sqrt(CHAINS))
    np.testing.assert_allclose(path.var(axis=1), 1, atol=5 * np.sqrt(2 / CHAINS))


def test_coarse_steps_are_made_good_by_refusing_some():
    """Three steps of half an sd: without refusals the variance would be 1 / (1 - 0.52^2 / 4) = 1.07."""
    random = np.random.default_rng(1)
    density = gaussian(1.0)
    place = Place.at(random.normal(size=(20_000, 1)), density)
    for _ in range(3):
        place, _ = move(density, place, Kick.draw(random, 20_000, 1), Stride(TURN / 3, 3))
    assert place.x.var() == pytest.approx(1, abs=5 * np.sqrt(2 / 20_000))


def test_where_the_density_is_not_a_number_nobody_goes():
    def half(x):
        return np.where(x[:, 0] > 0, np.nan, 0.0), np.zeros_like(x)

    path = path_of(gaussian(1.0), 1)[-1]
    start = Place.at(-np.abs(path), half)
    end, odds = move(half, start, Kick.draw(np.random.default_rng(0), CHAINS, 1), Stride(1.0, 1))
    assert (end.x < 0).all()
    assert set(np.unique(odds)) == {0.0, 1.0}


@pytest.mark.parametrize("sd", [1.5, 3.0, 10.0])
def test_what_is_carried_over_tells_the_sd(sd):
    """cos(T / s), also while the chains are still spreading from where q is: within 5 / sqrt(2,800)."""
    path = path_of(gaussian(sd**-2), 1)
    assert carried_over(path)[0] == pytest.approx(np.cos(TURN / sd), abs=5 / np.sqrt(7 * CHAINS))


@pytest.mark.parametrize("sd", [0.8, 1.0, 1.5, 2.0])
def test_drift_is_told_before_it_is_over(sd):
    """Within five standard errors, of which each is at most 0.06, as all are held to 0.06 (false failure 1e-5)."""
    path, twins = path_of(gaussian(sd**-2), 2), path_of(gaussian(1.0), 2)
    values = -0.5 * (path**2).sum(axis=-1) / sd**2
    drift = Drift.of(path, twins, values)
    assert drift.noise.max() < 0.06
    np.testing.assert_allclose(drift.mean, 0, atol=0.3)
    np.testing.assert_allclose(drift.log_sd, np.log(sd), atol=0.3)
    assert path[-JUDGED:].shape == (JUDGED, CHAINS, 2)


def test_a_constant_has_nowhere_to_go():
    """A tenth, give or take round-off, which is no spread of it."""
    random = np.random.default_rng(0)
    path, twins = (random.choice([0.1, np.nextafter(0.1, 1)], (TRAJECTORIES, CHAINS, 1)) for _ in range(2))
    values = random.normal(size=(TRAJECTORIES, CHAINS))
    drift = Drift.of(path, twins, values)
    for told in (drift.mean, drift.log_sd, drift.noise, drift.memory, drift.left):
        np.testing.assert_array_equal(told, 0.0)
    assert drift.drawn_noise.max() < 1e-12


def test_stretched_coordinates():
    """There and back again; and gradients go with them."""
    random = np.random.default_rng(0)
    directions = np.linalg.qr(random.normal(size=(4, 2)))[0]
    frame = Stretched(Frame(np.arange(4.0), np.ones(4)), directions, np.array([3.0, 10.0]))
    y, slopes = random.normal(size=(5, 4)), random.normal(size=4)
    np.testing.assert_allclose(frame.enter(frame.leave(y)), y, atol=1e-12)
    moved = y + 1e-3 * (along := random.normal(size=(5, 4)))
    change = (frame.leave(moved) - frame.leave(y)) @ slopes
    gradient = frame.along(np.broadcast_to(slopes, (5, 4)))
    np.testing.assert_allclose(change, 1e-3 * (along * gradient).sum(axis=1), rtol=1e-9)


def test_a_direction_that_all_share_is_found_and_stretched():
    """Ten entries; along their sum the posterior is eight times as wide as q. An entry shows little of that, what is
    hidden more; in stretched coordinates nothing is slow."""
    size, sd = 10, 8.0
    share = np.ones(size) / np.sqrt(size)
    precision = np.eye(size) + (sd**-2 - 1) * np.outer(share, share)
    coordinates = lay_out({"z": isvi.real(size)}, ["z"])
    frame = Frame(np.zeros(size), np.ones(size))

    def density(x):
        return -0.5 * np.sum((x @ precision) * x, axis=1), -x @ precision

    path, twins = path_of(density, size), path_of(gaussian(1.0), size)
    assert hidden(path, twins, frame, coordinates) > 0.1
    assert hidden(twins, twins, frame, coordinates) < 0.02
    wider = stretched(frame, path, coordinates, TURN)
    assert wider is not None
    along = np.abs(wider.directions.T @ share).max()
    assert along > 0.95
    assert wider.scales.max() == pytest.approx(sd, rel=0.25)
    assert stretched(frame, twins, coordinates, TURN) is None
