"""The ELBO of all rows, from what every mini-batch said last."""

import jax.numpy as jnp
import numpy as np
import pytest
from support import regression

import isvi
from isvi.fitting.running.newest import Newest

BATCHES, ROW = 20, 7
RANDOM = np.random.default_rng(5)
ORDER = RANDOM.permutation(BATCHES)
OFFSETS = 1000 * RANDOM.normal(size=BATCHES)


def visited(levels: np.ndarray, offsets: np.ndarray = OFFSETS) -> tuple[Newest, list[float], list[int]]:
    """A run in which visit number v says ``levels[v]`` and its mini-batch's offset: what is known at its end, and the
    means and ends of its rows."""
    newest, means, ends, row = Newest.none(BATCHES), [], [], []
    for visit, level in enumerate(levels):
        batch = ORDER[visit % BATCHES]
        row.append(level + offsets[batch])
        newest = newest.add(jnp.int32(batch), jnp.float32(row[-1]), jnp.array(True))
        if len(row) == ROW or visit == len(levels) - 1:
            means.append(float(np.mean(row)))
            ends.append(visit + 1)
            newest, row = newest._replace(visits=jnp.zeros_like(newest.visits)), []
    return newest, means, ends


def test_what_mini_batches_differ_by_is_taken_off():
    """A level that rises and stays over the last pass comes back, to the rounding of float32 at 1,000: without the
    offsets, which spread the means of rows by hundreds."""
    levels = np.concatenate([np.linspace(-500, 0, 80), np.zeros(BATCHES)])
    newest, means, ends = visited(levels)
    starts = [0, *ends[:-1]]
    truth = [levels[start:end].mean() for start, end in zip(starts, ends, strict=True)]
    np.testing.assert_allclose(newest.level(means, ends, ORDER), np.asarray(truth) + OFFSETS.mean(), atol=0.01)
    assert np.std(np.asarray(means) - truth) > 100


def test_nothing_is_known_before_the_first_pass_is_complete():
    newest, means, ends = visited(np.zeros(BATCHES - 1))
    assert newest.level(means, ends, ORDER) == []
    assert newest.overall() is None


def test_the_standard_error_is_that_of_the_noise():
    """Noise of sd 2 on every estimate. The spread of 20 changes has a relative standard error of 1/sqrt(38), so within
    0.6 to 1.5 times the truth it fails below 1 in 1,000 seeds; the mean is within 5 standard errors (6e-7)."""
    newest, _, _ = visited(2.0 * np.random.default_rng(1).normal(size=3 * BATCHES))
    mean, error = newest.overall()
    assert 0.6 < error / (2.0 / np.sqrt(BATCHES)) < 1.5
    assert abs(mean - OFFSETS.mean()) < 5 * 2.0 / np.sqrt(BATCHES)


def test_estimates_that_do_not_count_change_nothing():
    newest, _, _ = visited(np.zeros(2 * BATCHES))
    after = newest.add(jnp.int32(3), jnp.float32(jnp.nan), jnp.array(False))
    np.testing.assert_array_equal(after.elbos, newest.elbos)
    np.testing.assert_array_equal(after.visits, newest.visits)


@pytest.mark.parametrize("batch_size", [regression.BATCH_SIZE, regression.ROWS])
def test_the_end_of_a_fit_is_its_elbo(batch_size):
    """The posterior is Gaussian, so the last pass of a full-rank fit has the ELBO log p(y), to what is left to gain
    (0.01 nat), and estimates by mirrored pairs of signs have no noise but that of their curvature. The mini-batches
    themselves differ by tens of nats."""
    fit = isvi.fit(regression.model(), regression.data(), batch_size=batch_size, progress=False)
    assert fit.history.level[-1] == pytest.approx(regression.log_evidence(), abs=1.5)
    assert len(fit.history.level) == len(fit.history.visits) == len(fit.history)


def test_the_progress_bar_shows_it():
    seen = []

    class Note(isvi.Callback):
        def on_row(self, row):
            seen.append((row.elbo, row.elbo_standard_error))

    fit = isvi.fit(
        regression.model(), regression.data(), batch_size=30, algorithm=isvi.SGD(), budget=2000, callbacks=[Note()]
    )
    assert seen[0][0] == fit.history.elbo[0]
    elbo = fit.elbo(1000)
    assert abs(seen[-1][0] - elbo.value) < 5 * np.hypot(seen[-1][1], elbo.standard_error)
