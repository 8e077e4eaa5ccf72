"""Verdicts on posteriors whose truth is known by long MCMC runs."""

import numpy as np
import pytest
from support import posteriordb

import isvi


def flat(values: dict[str, np.ndarray]) -> np.ndarray:
    return np.concatenate([np.ravel(value) for value in values.values()])


@pytest.mark.parametrize(
    ("name", "make", "family", "verdict"),
    [
        ("kidiq-kidscore_interaction", posteriordb.kidiq, isvi.FullRank(), "good"),
        ("sblrc-blr", posteriordb.sblrc, isvi.FullRank(), "good"),
        ("kilpisjarvi_mod-kilpisjarvi", posteriordb.kilpisjarvi, isvi.MeanField(), "poor"),
        ("sblrc-blr", posteriordb.sblrc, isvi.MeanField(), "usable"),
    ],
)
def test_the_verdict_is_true(name, make, family, verdict):
    """A good fit has means within a quarter of an sd and sds within a quarter of the reference's; so have resampled
    draws of a usable one."""
    data, reference = posteriordb.load(name)
    fit = isvi.fit(*make(data), family=family, seed=0)

    def right(mean: dict[str, np.ndarray], sd: dict[str, np.ndarray]) -> bool:
        error = np.max(np.abs(flat(mean) - reference["mean"]) / np.array(reference["sd"]))
        ratio = flat(sd) / np.array(reference["sd"])
        return bool(error < 0.25 and ratio.min() > 0.8 and ratio.max() < 1.25)

    told = fit.diagnose()
    assert told.verdict == verdict, str(told)
    assert right(fit.mean(), fit.sd()) == told.good
    if verdict == "usable":
        draws = fit.resample(4000)
        assert right({k: v.mean(axis=0) for k, v in draws.items()}, {k: v.std(axis=0) for k, v in draws.items()})
    if verdict != "good":
        assert "FullRank" in " ".join(told.advice)
