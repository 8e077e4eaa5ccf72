"""isvi.fit from end to end on a conjugate model."""

import logging

import numpy as np
import optax
import pytest
from support import regression

import isvi
from isvi.fitting.running import driver


def fitted(budget=3000, seed=0, algorithm=isvi.ISAG(), **options) -> isvi.Fit:  # noqa: B008 (immutable)
    return isvi.fit(
        regression.model(),
        regression.data(),
        algorithm=algorithm,
        optimizer=optax.adam(optax.cosine_decay_schedule(0.05, budget)),
        budget=budget,
        batch_size=regression.BATCH_SIZE,
        seed=seed,
        **options,
    )


@pytest.fixture(scope="module")
def mean_field() -> isvi.Fit:
    return fitted()


@pytest.fixture(scope="module")
def full_rank() -> isvi.Fit:
    return fitted(family=isvi.FullRank())


def same_bits(first: isvi.Fit, second: isvi.Fit) -> bool:
    return (
        all(np.array_equal(a, b) for a, b in zip(first.params, second.params, strict=True))
        and first.history.elbo == second.history.elbo
    )


def test_mean_field_finds_means_and_conditional_scales(mean_field):
    """The optimum has the posterior's mean and the conditional standard deviations; a quarter of one in the
    mean and a tenth in the scale are far more than the noise left when the rate has fallen to zero."""
    centre, precision = regression.posterior()
    sd = 1 / np.sqrt(np.diag(precision))
    np.testing.assert_allclose(mean_field.mean()["w"], centre, atol=0.25 * sd.min())
    np.testing.assert_allclose(mean_field.sd()["w"], sd, rtol=0.1)
    assert regression.gap(mean_field.params) < 0.1


def test_full_rank_finds_the_posterior(full_rank):
    draws = full_rank.sample(20_000)["w"]
    assert regression.divergence(draws.mean(axis=0), np.cov(draws.T)) < 0.15
    estimate = full_rank.elbo(400)
    assert abs(estimate.value - regression.log_evidence()) < 0.15 + 5 * estimate.standard_error


def test_counters_and_history(mean_field):
    assert mean_field.status.kind == "budget"
    assert mean_field.gradients == 3000
    assert mean_field.steps >= mean_field.gradients
    rows = mean_field.history.as_arrays()
    assert rows["gradients"][-1] == 3000
    assert np.all(np.diff(rows["gradients"]) > 0)
    assert np.all(np.diff(rows["steps"]) > 0)
    assert np.all(np.isfinite(rows["elbo"]))
    assert rows["elbo"][-20:].mean() > rows["elbo"][0]


def test_same_seed_same_bits_and_another_seed_others(mean_field):
    assert same_bits(mean_field, fitted())
    assert not same_bits(mean_field, fitted(seed=1))


def test_how_often_the_host_asks_changes_nothing(mean_field, monkeypatch):
    monkeypatch.setattr(driver, "SECONDS_PER_CALL", 1e-9)
    assert same_bits(mean_field, fitted())


def test_bytes_of_memory_are_reported_before_the_fit(caplog):
    with caplog.at_level(logging.INFO, logger="isvi"):
        fitted(budget=10)
    report = next(record.getMessage() for record in caplog.records if "bytes" in record.getMessage())
    assert "130 rows" in report
    assert "5 mini-batches" in report


def test_data_may_be_a_tuple_a_frame_or_absent():
    pandas = pytest.importorskip("pandas")
    options = {"algorithm": isvi.SGD(), "optimizer": optax.adam(0.05), "budget": 20}
    frame = pandas.DataFrame({"x": [1.0, 2.0, 3.0], "y": [1.0, 2.0, 3.0]})

    def model(log_likelihood=None) -> isvi.Model:
        return isvi.Model({"m": isvi.real()}, lambda z: -0.5 * z["m"] ** 2, log_likelihood)

    by_name = model(lambda z, rows: -((rows["y"] - z["m"] * rows["x"]) ** 2).sum())
    by_place = model(lambda z, rows: -((rows[1] - z["m"] * rows[0]) ** 2).sum())
    first = isvi.fit(by_name, frame, **options)
    second = isvi.fit(by_place, (frame["x"], frame["y"]), **options)
    np.testing.assert_array_equal(first.params.loc, second.params.loc)
    assert isvi.fit(model(), **options).status.good
