"""Is "converged" true? The default call on regressions with a nearly flat direction, and on everyday ones, against the
best Gaussian.

Errors are those of the worst entry: of a mean in posterior sds, of an sd as a ratio. Run with
``python -m benchmarks.flat_directions --problems one-hot-levels,ordinal --seeds 5 --batch-size 200``.
"""

import argparse
from collections.abc import Iterator

import numpy as np

import isvi
from benchmarks import everyday_held_out, everyday_hierarchies, everyday_regressions, few_rows, flat_problems
from benchmarks.flat_problems import FlatProblem

PROBLEMS = {
    **flat_problems.PROBLEMS,
    **everyday_regressions.PROBLEMS,
    **everyday_hierarchies.PROBLEMS,
    **everyday_held_out.PROBLEMS,
    **few_rows.PROBLEMS,
}

MEAN_OFF, SD_OFF = 0.1, 1.1
HEADER = "| problem (latents) | seed | status | gradients | worst mean, sds | sd ratios | claim is true | seconds |"


def judged(problem: FlatProblem, seed: int, batch_size: int | None) -> str:
    """A row of the table."""
    fit = isvi.fit(problem.model, problem.data, seed=seed, batch_size=batch_size, progress=False)
    best = problem.best
    off = np.abs(np.asarray(fit.approximation.location(fit.params), np.float64) - best.mean) / best.sd
    ratio = np.asarray(fit.approximation.scale(fit.params), np.float64) / best.sd
    right = off.max() < MEAN_OFF and ratio.min() > 1 / SD_OFF and ratio.max() < SD_OFF
    claim = "yes" if right or fit.status.kind != "converged" else "**no**"
    cells = [
        f"{problem.name} ({len(off)})",
        str(seed),
        fit.status.kind,
        f"{fit.gradients:,}",
        f"{off.max():.3f}",
        f"{ratio.min():.2f} - {ratio.max():.2f}",
        claim,
        f"{fit.seconds:.1f}",
    ]
    return f"| {' | '.join(cells)} |"


def rows(names: list[str], seeds: int, batch_size: int | None) -> Iterator[str]:
    for name in names:
        problem = PROBLEMS[name]()
        for seed in range(seeds):
            yield judged(problem, seed, batch_size)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--problems", default=",".join(PROBLEMS))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--batch-size", type=int)
    chosen = parser.parse_args()
    print(HEADER, "|" + " --- |" * HEADER.count(" | ") + " --- |", sep="\n")
    for row in rows(chosen.problems.split(","), chosen.seeds, chosen.batch_size):
        print(row, flush=True)


if __name__ == "__main__":
    main()
