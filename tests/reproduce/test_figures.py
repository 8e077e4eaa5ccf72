"""Every figure at toy size: the shape of its numbers, and that its files appear."""

import math
from pathlib import Path

import numpy as np
import pytest

from reproduce import (
    figure1_importance_sampling,
    figure2_illustration,
    figure3_dimensionality,
    figure4_isgd_against_sgd,
    figure5_isag,
    figure6_robustness,
)
from reproduce.results import Claim, read_claims, read_table, write_claims, write_results


def column(rows: list[dict[str, str]], name: str) -> np.ndarray:
    return np.array([float(row[name]) for row in rows])


def check_files(out: Path, stem: str) -> None:
    assert (out / f"{stem}.png").stat().st_size > 5000
    assert 1000 < (out / f"{stem}.svg").stat().st_size < 300_000


def test_figure1_exact_weights_average_to_one_and_the_papers_to_the_volume_ratio(tmp_path: Path) -> None:
    figure1_importance_sampling.run("toy", tmp_path)
    (means,) = read_table(tmp_path, "figure1_means")
    # Five standard errors: the weights' standard deviation is about 0.9, with 2,000 draws.
    assert float(means["mean_exact"]) == pytest.approx(1, abs=0.1)
    assert float(means["mean_paper"]) == pytest.approx(float(means["volume_ratio"]), abs=0.1)
    assert float(means["volume_ratio"]) < 0.8
    draws = read_table(tmp_path, "figure1_draws")
    weights = dict(zip([row["draw"] for row in draws], column(draws, "weight_exact"), strict=True))
    assert min(weights, key=weights.get) == "D"  # type: ignore[arg-type]
    assert max(weights, key=weights.get) == "E"  # type: ignore[arg-type]
    check_files(tmp_path, "figure1_importance_sampling")


def test_figure2_isgd_needs_at_most_a_fifth_of_sgds_model_gradients(tmp_path: Path) -> None:
    figure2_illustration.run("toy", tmp_path)
    rows = read_table(tmp_path, "figure2_summary")
    needed = {
        row["method"]: float(row["gradients_median"])
        for row in rows
        if row["comparison"] == "authors' setting" and row["gap_per_latent"] == "0.1"
    }
    assert needed["I-SGD"] <= needed["SGD"] / 5
    paths = read_table(tmp_path, "figure2_paths")
    fresh = {m: sum(r["fresh"] == "True" for r in paths if r["method"] == m) for m in ("SGD", "I-SGD")}
    steps = {m: sum(r["method"] == m for r in paths) for m in ("SGD", "I-SGD")}
    assert fresh["SGD"] == steps["SGD"]
    assert fresh["I-SGD"] < steps["I-SGD"] / 4
    check_files(tmp_path, "figure2_illustration")


def test_figure3_large_factors_lose_their_weight_faster(tmp_path: Path) -> None:
    figure3_dimensionality.run("toy", tmp_path)
    rows = read_table(tmp_path, "figure3_weights")
    for rate in figure3_dimensionality.RATES:
        small, large = (
            column([r for r in rows if r["size"] == size and float(r["rate"]) == rate], "median")
            for size in ("5", "25")
        )
        np.testing.assert_allclose([small[0], large[0]], 1, rtol=1e-3)
        assert large[1:].mean() < small[1:].mean()
    gaps = column(read_table(tmp_path, "figure3_gaps"), "gap_median")
    assert (gaps > -1e-3).all()
    assert np.isfinite(gaps).all()
    check_files(tmp_path, "figure3_dimensionality")


@pytest.mark.slow
def test_figure4_costs_fall_with_the_gap_and_gaps_are_not_negative(tmp_path: Path) -> None:
    figure4_isgd_against_sgd.compute("a", "toy", tmp_path)
    figure4_isgd_against_sgd.compute("d", "toy", tmp_path)
    claims = figure4_isgd_against_sgd.conclude("toy", tmp_path)
    assert {claim.figure for claim in claims} == {"4 a-c", "4 d"}
    for panel in "ad":
        runs, summary = (read_table(tmp_path, f"figure4_{panel}_{kind}") for kind in ("runs", "summary"))
        assert column(runs, "gap_per_latent").min() > -1e-3
        needed = column(
            [r for r in summary if r["comparison"] == "both tuned" and r["method"] == "SGD"], "gradients_median"
        )
        assert (np.diff(needed[np.isfinite(needed)]) >= 0).all()
    isgd = [r for r in read_table(tmp_path, "figure4_a_runs") if r["method"] == "I-SGD"]
    steps_per_gradient = column(isgd, "steps")[-1] / column(isgd, "gradients")[-1]
    assert 7 < steps_per_gradient < 14
    check_files(tmp_path, "figure4_isgd_against_sgd")


def test_figure5_all_methods_make_progress_after_the_same_first_pass(tmp_path: Path) -> None:
    figure5_isag.run("toy", tmp_path)
    rows = [r for r in read_table(tmp_path, "figure5_runs") if r["comparison"] == "tuned"]
    for method in ("SAG", "SRA", "I-SAG"):
        gaps = column([r for r in rows if r["method"] == method], "gap_per_latent")
        assert gaps[-1] < gaps[0] / 100
    check_files(tmp_path, "figure5_isag")


def test_figure6_counts_weights_and_every_t_gets_there(tmp_path: Path) -> None:
    figure6_robustness.run("toy", tmp_path)
    rows = [r for r in read_table(tmp_path, "figure6_robustness") if r["comparison"] == "both tuned"]
    needed = dict(zip(column(rows, "t"), column(rows, "gradients_median"), strict=True))
    assert all(math.isfinite(count) for count in needed.values())
    weights = read_table(tmp_path, "figure6_weights")
    assert (column(weights, "share_above_2") >= column(weights, "share_above_10")).all()
    assert (column(weights, "largest") > 1).all()
    check_files(tmp_path, "figure6_robustness")


def test_results_keep_claims_that_do_not_hold(tmp_path: Path) -> None:
    claims = [Claim("9", "a claim", "10x", "1x", "does not hold", "a reason")]
    write_claims(tmp_path, "figure9", claims)
    write_results(tmp_path, "full", "five seeds")
    assert read_claims(tmp_path) == claims
    text = (tmp_path / "RESULTS.md").read_text()
    assert "| 9 | a claim | 10x | 1x | **does not hold** |" in text
    assert "a reason" in text
