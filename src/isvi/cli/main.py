"""The command ``isvi``."""

import os
import sys
import traceback
from contextlib import suppress
from typing import Annotated

import typer

from isvi.cli.demo import demo
from isvi.cli.exits import DONE, INTERRUPTED, REFUSED, USAGE
from isvi.cli.fit import fit
from isvi.cli.plain import num_answers, only_json, print_json, say
from isvi.cli.report import report
from isvi.cli.saved import diagnose, summary
from isvi.core.errors import ConfigurationError, IsviError
from isvi.core.programs import keep_compiled

app = typer.Typer(
    name="isvi",
    help="Variational inference that evaluates your model's gradient as rarely as possible.",
    epilog="Begin with `isvi demo`, or `isvi fit model.py --data rows.parquet --out run/`. The docs: docs/start.md and "
    "docs/command-line.md in the sources, or the site of `make docs`; in Python, help(isvi).",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # names in messages may look like markup
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
    with suppress(ConfigurationError):  # no folder to write to: then everything is compiled
        keep_compiled()


def main() -> None:
    """The entry point. What isvi refuses on purpose is told in one message, with exit code 1; a wrong option
    exits with 2, and anything else is a bug, or the model's, and keeps its traceback."""
    if "--json" in sys.argv[1:] and "--help" not in sys.argv[1:]:
        sys.exit(_in_json())
    try:
        app()
    except IsviError as error:
        say(f"isvi: {error}", err=True)
        sys.exit(REFUSED)
    except BrokenPipeError:  # who reads the output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(REFUSED)


def _in_json() -> int:
    """One JSON object on standard output, however the command ends; all other text on standard error."""
    said = num_answers()
    with only_json():
        try:
            code = int(app(standalone_mode=False) or DONE)
            kind, message = "Interrupted" if code == INTERRUPTED else "Error", "stopped before there was a result"
        except IsviError as error:
            code, kind, message = REFUSED, type(error).__name__, str(error)
            say(f"isvi: {message}", err=True)
        except Exception as error:
            usage = getattr(error, "format_message", None)  # of what typer refuses
            code, kind = (USAGE, "UsageError") if usage else (REFUSED, type(error).__name__)
            message = usage() if usage else str(error)
            say(f"isvi: {message}" if usage else traceback.format_exc(), err=True)
        if num_answers() == said:
            print_json({"error": kind, "message": message})
    return code
