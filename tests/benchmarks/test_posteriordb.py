"""The defaults of ``isvi.fit`` on real posteriors, and the benchmark around them."""

import os
from pathlib import Path

import numpy as np
import pytest

from benchmarks.posteriordb.measure import k_hat, run_isvi
from benchmarks.posteriordb.reference import DataAbsent, find
from benchmarks.posteriordb.report import CLOSE, EXACT, markdown

DATA = Path(os.environ.get("ISVI_POSTERIORDB", "/work/shared/posteriordb"))
needs_data = pytest.mark.skipif(
    not DATA.is_dir(), reason=f"no reference posteriors at {DATA}; set ISVI_POSTERIORDB to the folder that has them"
)


@needs_data
@pytest.mark.parametrize("name", ["sblrc", "kidiq", "earnings"])
def test_full_rank_is_right_on_raw_predictors(name: str) -> None:
    """Means to 0.1 sd and sds to 10%: the fit ends when its records leave about 0.03 sd, and the reference is sure to
    0.01 sd, so that the bars are about three standard errors away for each of five or six parameters."""
    [posterior] = find(DATA, name)
    result = run_isvi(posterior, "full rank", seed=0)
    assert EXACT.holds(result), (result.mean_error, result.sd_ratio)
    assert result.k_hat < 0.7


@needs_data
def test_mean_field_finds_the_mean_along_a_ridge() -> None:
    """Intercept and slope of a regression on raw years: mean-field draws reach 1/200 of the way along the ridge."""
    [posterior] = find(DATA, "kilpisjarvi")
    result = run_isvi(posterior, "mean field", seed=0)
    assert CLOSE.holds(result), result.mean_error
    assert result.worst_sd < 0.01
    assert "kilpisjarvi" in markdown([result])


def test_absent_data_is_said(tmp_path: Path) -> None:
    with pytest.raises(DataAbsent, match="no reference posteriors at"):
        find(tmp_path / "nowhere")
    with pytest.raises(DataAbsent, match="lacks sblrc-blr"):
        find(tmp_path, "sblrc")
    with pytest.raises(DataAbsent, match="is called like"):
        find(tmp_path, "no such posterior")


def test_k_hat_is_the_tails_shape() -> None:
    """Exponentials times k are logarithms of Pareto weights with shape k. From 4,000 draws the estimate (with its weak
    prior towards 0.5) has a standard error of about (1 + k) / sqrt(190) = 0.14 at 0.9; the bounds are three of it."""
    logarithms = np.random.default_rng(0).exponential(size=4000)
    assert k_hat(0.9 * logarithms) == pytest.approx(0.9, abs=0.42)
    assert k_hat(0.2 * logarithms) == pytest.approx(0.2, abs=0.3)
    assert k_hat(np.array([0.0, np.inf])) == np.inf
