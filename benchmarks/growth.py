"""What a record costs the default method as the rows, or the latents, become more.

Milliseconds per record of two draws, in the second half of a run that is kept from stopping, beside those of plain SGD
with two draws, which is the model's gradient and little else.

    python -m benchmarks.growth
"""

from collections.abc import Callable
from pathlib import Path

import isvi
from benchmarks.problems import Problem, diagonal_gaussian, linear_regression

BUDGET = 1_200
REPEATS = 2
NUM_BATCHES = 50
ROWS = 50_000
PROBLEMS = {"diagonal Gaussian": diagonal_gaussian, "linear regression": linear_regression}
Make = Callable[[int, int, int], Problem]


def milliseconds_per_record(problem: Problem, **options: object) -> float:
    """The least of a few runs: what disturbs a run only makes it longer."""
    times = []
    for _ in range(REPEATS):
        fit = isvi.fit(
            problem.model, problem.data, batch_size=problem.batch_size, budget=BUDGET, progress=False, **options
        )
        half = len(fit.history.seconds) // 2
        seconds = fit.history.seconds[-1] - fit.history.seconds[half]
        times.append(2e3 * seconds / (fit.history.gradients[-1] - fit.history.gradients[half]))
    return min(times)


def row(make: Make, rows: int, dim: int) -> str:
    problem = make(rows, dim, rows // NUM_BATCHES)
    whole = milliseconds_per_record(problem, algorithm=isvi.Auto(tolerance=1e-9))
    gradient = milliseconds_per_record(problem, algorithm=isvi.SGD(), num_samples=2)
    return f"| {rows:,} | {problem.latents:,} | {whole:.2f} | {gradient:.2f} | {whole - gradient:.2f} |"


def table(title: str, lines: list[str]) -> list[str]:
    head = ["| rows | latents | default | gradient | the rest |", "| --- | --- | --- | --- | --- |"]
    return [f"## {title}", "", *head, *lines, ""]


def report() -> str:
    lines = [
        "# What a record costs as problems grow",
        "",
        f"`python -m benchmarks.growth`: milliseconds per record of two draws, {NUM_BATCHES} mini-batches, on 2 cores;",
        f"the least of {REPEATS} runs. Twice the rows should only make the gradient dearer, twice the latents at most",
        "double everything. Times differ by a fifth from run to run. Up to 600 latents the curvature may become a full",
        "matrix, where a diagonal is not good enough; neither of these problems needs one for long.",
        "",
    ]
    for name, make in PROBLEMS.items():
        lines += table(f"{name}, more rows", [row(make, rows, 250) for rows in (25_000, 50_000, 100_000)])
        lines += table(f"{name}, more latents", [row(make, ROWS, dim) for dim in (50, 100, 250, 500, 1_000, 2_000)])
    return "\n".join(lines).rstrip() + "\n"


if __name__ == "__main__":
    text = report()
    print(text)
    (Path(__file__).parent / "results" / "growth.md").write_text(text)
