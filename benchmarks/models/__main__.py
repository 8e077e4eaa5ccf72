"""``python -m benchmarks.models``: the default call on other people's models, against NUTS.

Adds to ``benchmarks/results/models.csv`` and writes the tables of ``models.md`` from all that is there.
"""

from pathlib import Path
from typing import Annotated

import typer

from benchmarks.models import report, store
from benchmarks.models.measure import Result, run_isvi
from benchmarks.models.reference import read


def main(
    names: Annotated[list[str] | None, typer.Argument(help="Of models; all by default.")] = None,
    seeds: Annotated[int, typer.Option(help="How many seeds of isvi's fits.")] = 3,
    language: Annotated[str, typer.Option(help="NumPyro, PyMC or Stan.")] = "NumPyro",
    rivals: Annotated[bool, typer.Option(help="Run the rivals and the best Gaussian instead of isvi.")] = False,
    only: Annotated[str, typer.Option(help="Only rivals whose names contain this.")] = "",
    out: Annotated[Path, typer.Option(help="The CSV file; the table goes next to it.")] = store.RESULTS,
    only_report: Annotated[bool, typer.Option(help="Write the tables of what is there.")] = False,
) -> None:
    """Fit, compare, and add to the results."""
    cases, given = _language(language)
    for name in [] if only_report else names or list(cases):
        reference = read(name)
        if rivals:
            from benchmarks.models.rivals import run_rivals

            results = list(run_rivals(cases[name], reference, only)) if reference and reference.converged else []
        else:
            results = [run_isvi(cases[name], reference, seed, language, given) for seed in range(seeds)]
        for result in results:
            print(_summary(result), flush=True)
        store.add(results, out)
    report.write(store.read(out), out.with_suffix(".md"))


def _language(language: str) -> tuple[dict, object]:
    if language == "PyMC":
        from benchmarks.models import pymc

        return pymc.CASES, pymc.given
    if language == "Stan":
        from benchmarks.models import stan

        return stan.CASES, stan.given
    from benchmarks.models.measure import numpyro_model
    from benchmarks.models.numpyro import CASES

    return CASES, numpyro_model


def _summary(result: Result) -> str:
    errors = result.errors
    numbers = f"mean {errors.mean:.2f} at {errors.where}, sds {errors.smallest_sd:.2f} - {errors.largest_sd:.2f}"
    told = f"{result.verdict} ({report.truth_of(result)})" if result.accepted else result.message
    return (
        f"{result.language} {result.model} {result.method} {result.seed}: {result.status}, {result.gradients} "
        f"gradients, {result.seconds:.0f} s, {numbers}; {told}"
    )


if __name__ == "__main__":
    typer.run(main)
