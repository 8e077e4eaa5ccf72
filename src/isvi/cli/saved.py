"""``isvi summary`` and ``isvi diagnose``: what came out of a run, and whether it can be trusted."""

from pathlib import Path
from typing import Annotated

import typer

from isvi.cli.exits import DONE, POOR
from isvi.cli.fit import described
from isvi.cli.plain import print_json, say

Run = Annotated[Path, typer.Argument(help="Folder of a run, or a file that fit.save wrote.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print as JSON.")]


def summary(
    run: Run, as_json: AsJson = False, rows: Annotated[int, typer.Option(min=1, help="Rows to show.")] = 20
) -> None:
    """Posterior means, standard deviations and quantiles of a run. Reads its result only, and runs no code."""
    import isvi

    fit = isvi.load(run)
    if as_json:
        print_json(described(fit, run))
    else:
        say(fit.summary(rows))


def diagnose(
    run: Annotated[Path, typer.Argument(help="Folder of a run that `isvi fit` made.")],
    model: Annotated[Path | None, typer.Option(help="The model file, if it has moved.")] = None,
    data: Annotated[Path | None, typer.Option(help="The data, if they have moved.")] = None,
    draws: Annotated[int | None, typer.Option(min=10, help="Draws, each a pass over the data.")] = None,
    as_json: AsJson = False,
) -> None:
    """Did it work? Exits with 0 if the approximation is good or usable, with 4 if it is poor."""
    import isvi
    from isvi.cli.files import opened

    fit = isvi.load(run, *opened(run, model, data))
    diagnosis = fit.diagnose(draws)
    if as_json:
        print_json(diagnosis.to_dict())
    else:
        say(diagnosis)
    raise typer.Exit(POOR if diagnosis.verdict == "poor" else DONE)
