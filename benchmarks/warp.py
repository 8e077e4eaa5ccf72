"""The default call with and without the warp: real posteriors with references, and shapes with exact draws.

``python -m benchmarks.warp --data PATH [--seeds 2]`` writes ``warp.csv`` and ``warp.md`` to ``benchmarks/results``.
Without ``--data`` only the shapes are measured.
"""

import csv
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

import isvi
from benchmarks.posteriordb.measure import k_hat_of_fit
from benchmarks.posteriordb.reference import find
from benchmarks.shapes import SHAPES

EXACT_DRAWS, DRAWS = 400_000, 40_000
RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True)
class Row:
    """One fit. Errors of means in sds, of quantiles in interquartile ranges; the worst entry."""

    problem: str
    method: str
    seed: int
    mean: float
    lowest_sd: float
    highest_sd: float
    quantiles: float
    k_hat: float
    verdict: str
    gradients: int
    shape: str
    status: str


METHODS: dict[str, isvi.families.Family | None] = {"Gaussian": isvi.FullRank(), "default": None}


def of_posterior(posterior, method: str, seed: int) -> Row:
    problem = posterior.problem
    fit = isvi.fit(problem.model, problem.rows, family=METHODS[method], seed=seed, progress=False)
    off = np.abs(posterior.pick(fit.mean()) - posterior.mean) / posterior.sd
    ratios = posterior.pick(fit.sd()) / posterior.sd
    return _row(posterior.short, method, seed, fit, off, ratios, np.nan, k_hat_of_fit(fit, problem, seed))


def of_shape(name: str, method: str, seed: int) -> Row:
    shape = SHAPES[name]()
    exact = shape.draw(np.random.default_rng(7), EXACT_DRAWS)
    fit = isvi.fit(shape.model, shape.data, family=METHODS[method], seed=seed, progress=False)
    draws = fit.sample(DRAWS)
    mine, theirs = (
        np.concatenate([np.reshape(one[name], (len(one[name]), -1)) for name in exact], axis=1).astype(float)
        for one in (draws, exact)
    )
    levels = [5, 25, 50, 75, 95]
    true, found = np.percentile(theirs, levels, axis=0), np.percentile(mine, levels, axis=0)
    between = true[3] - true[1]
    tails = np.abs(found - true)[[0, 4]] / between
    off = np.abs(mine.mean(axis=0) - theirs.mean(axis=0)) / theirs.std(axis=0)
    return _row(name, method, seed, fit, off, mine.std(axis=0) / theirs.std(axis=0), tails.max(), fit.diagnose().k_hat)


def _row(name, method, seed, fit, off, ratios, tails, k_hat) -> Row:
    shape = "bent" if fit.approximation.warped else "Gaussian"
    numbers = (float(off.max()), float(ratios.min()), float(ratios.max()), float(tails), float(k_hat))
    return Row(name, method, seed, *numbers, fit.diagnose().verdict, fit.gradients, shape, fit.status.kind)


def write(rows: list[Row], path: Path) -> None:
    with (path / "warp.csv").open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(field.name for field in fields(Row))
        writer.writerows([f"{x:.4f}" if isinstance(x, float) else x for x in astuple(row)] for row in rows)
    lines = [
        "# With and without the warp",
        "",
        "`isvi.fit` with `family=isvi.FullRank()` and with no family named, which bends the Gaussian where draws that",
        "were not used say so. Worst entries: errors of means in sds, ratios of sds, errors of the 5% and 95%",
        "quantiles in interquartile ranges. Posteriors of posteriordb against their references (k-hat of 1,000 draws",
        "of q); generated shapes against 400,000 exact draws (k-hat of the diagnosis, which draws around q too). A",
        "half-Cauchy has no sd, a Student t of 3 degrees no fourth moment: their ratios of sds say nothing, or little.",
        "Where nearly all draws are effective (mesquite, bent) k-hat is the tail of differences that are nothing.",
        "",
        "| problem | method | seed | mean | sds | quantiles | k-hat | verdict | gradients | q | ended |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        quantiles = "" if np.isnan(row.quantiles) else f"{row.quantiles:.3f}"
        cells = [
            row.problem,
            row.method,
            str(row.seed),
            f"{row.mean:.3f}",
            f"{row.lowest_sd:.3f} - {row.highest_sd:.3f}",
        ]
        cells += [quantiles, f"{row.k_hat:.2f}", row.verdict, f"{row.gradients:,}", row.shape, row.status]
        lines.append(f"| {' | '.join(cells)} |")
    (path / "warp.md").write_text("\n".join(lines) + "\n")


def main(
    data: Annotated[Path | None, typer.Option(help="Folder of the reference posteriors.")] = None,
    seeds: Annotated[int, typer.Option(help="How many seeds.")] = 2,
    only: Annotated[str, typer.Option(help="Only problems whose names contain this.")] = "",
    out: Annotated[Path, typer.Option(help="Where to write.")] = RESULTS,
) -> None:
    rows: list[Row] = []
    for name in [name for name in SHAPES if only in name]:
        rows += [of_shape(name, method, seed) for seed in range(seeds) for method in METHODS]
        write(rows, out)
    for posterior in [] if data is None else [one for one in find(data) if only in one.name]:
        rows += [of_posterior(posterior, method, seed) for seed in range(seeds) for method in METHODS]
        write(rows, out)


if __name__ == "__main__":
    typer.run(main)
