"""``python -m benchmarks.posteriordb --data PATH``: are the defaults right on real posteriors?

Writes ``posteriordb.csv`` and ``posteriordb.md`` to ``benchmarks/results``, or prints only if some posteriors were left
out.
"""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from benchmarks.posteriordb.measure import FAMILIES, Result, run_isvi
from benchmarks.posteriordb.reference import DataAbsent, Posterior, find
from benchmarks.posteriordb.report import table, write


def main(
    data: Annotated[Path, typer.Option(help="Folder with one folder per posterior.")],
    only: Annotated[str | None, typer.Option(help="Only posteriors whose names contain this.")] = None,
    seeds: Annotated[int, typer.Option(help="How many seeds of isvi's fits.")] = 3,
    rivals: Annotated[bool, typer.Option(help="Run NumPyro and Pathfinder too, with one seed.")] = True,
    out: Annotated[Path | None, typer.Option(help="Where to write; benchmarks/results by default.")] = None,
) -> None:
    """Fit the reference posteriors and compare."""
    console = Console(width=max(120, Console().width))
    try:
        posteriors = find(data, only)
    except DataAbsent as absent:
        console.print(str(absent))
        raise typer.Exit(2) from None
    results: list[Result] = []
    for posterior in posteriors:
        new = _measure(posterior, seeds, rivals)
        results += new
        console.print(table(new))
        if out is not None or only is None:
            write(results, out or Path(__file__).parents[1] / "results")


def _measure(posterior: Posterior, seeds: int, rivals: bool) -> list[Result]:
    results = [run_isvi(posterior, family, seed) for family in FAMILIES for seed in range(seeds)]
    if rivals:
        from benchmarks.posteriordb.rivals import run_numpyro, run_pathfinder

        results += [run_numpyro(posterior, family, seed=0) for family in FAMILIES]
        results.append(run_pathfinder(posterior, "low rank", seed=0))
    return results


if __name__ == "__main__":
    typer.run(main)
