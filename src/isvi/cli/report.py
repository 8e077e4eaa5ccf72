"""``isvi report``: what came out of a run, as one HTML file."""

from pathlib import Path
from typing import Annotated

import typer

from isvi.cli.exits import DONE, POOR


def report(
    run: Annotated[Path, typer.Argument(help="Folder of a run that `isvi fit` made.")],
    out: Annotated[Path | None, typer.Option(help="The file; by default report.html in the folder.")] = None,
    model: Annotated[Path | None, typer.Option(help="The model file, if it has moved.")] = None,
    data: Annotated[Path | None, typer.Option(help="The data, if they have moved.")] = None,
    draws: Annotated[int | None, typer.Option(min=25, help="Draws, each a pass over the data.")] = None,
) -> None:
    """Write a report: verdict, figures, latents, model. Exits as `isvi diagnose` does."""
    import isvi
    from isvi.cli.files import opened
    from isvi.cli.run_folder import Command
    from isvi.report import write_report

    fit = isvi.load(run, *opened(run, model, data))
    path = out or run / "report.html"
    write_report(fit, path, draws=draws, source=(model or Path(Command.read(run).model)).read_text())
    typer.echo(f"written: {path}")
    raise typer.Exit(POOR if fit.diagnose(draws).verdict == "poor" else DONE)
