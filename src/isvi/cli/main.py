"""The command ``isvi``."""

import sys
from typing import Annotated

import typer

from isvi.cli.demo import demo
from isvi.cli.exits import REFUSED
from isvi.cli.fit import fit
from isvi.cli.report import report
from isvi.cli.saved import diagnose, summary
from isvi.core.errors import IsviError

app = typer.Typer(
    name="isvi",
    help="Variational inference that evaluates your model's gradient as rarely as possible.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for command in (fit, summary, diagnose, report, demo):
    app.command()(command)


def _print_version(wanted: bool) -> None:
    if wanted:
        from isvi import __version__

        typer.echo(f"isvi {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Options that belong to no command."""


def main() -> None:
    """The entry point. What isvi refuses on purpose is told in one message, with exit code 1; a wrong option
    exits with 2, and anything else is a bug and keeps its traceback."""
    try:
        app()
    except IsviError as error:
        typer.echo(f"isvi: {error}", err=True)
        sys.exit(REFUSED)
