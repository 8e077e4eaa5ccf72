"""Results as text that any JSON reader takes, and as text that no terminal obeys."""

import json
import logging
import math
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from typing import Any, TextIO

import typer

from isvi.core.text import shown

_answer: list[TextIO] = []
"""Where JSON goes while everything else that is printed goes to standard error."""
_answers = 0


def as_json_text(value: Any) -> str:
    """JSON, with null for what is not finite: NaN and Infinity are Python's own, and no JSON."""
    return json.dumps(_finite(value), allow_nan=False)


def print_json(value: Any) -> None:
    global _answers
    typer.echo(as_json_text(value), file=_answer[-1] if _answer else None)
    _answers += 1


def num_answers() -> int:
    """How often JSON was printed so far."""
    return _answers


def say(text: object, err: bool = False) -> None:
    """Print text in which others' names may occur."""
    typer.echo(shown(str(text)), err=err)


@contextmanager
def only_json() -> Iterator[None]:
    """What a model file prints must not come between a script and its JSON."""
    _answer.append(sys.stdout)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        _answer.pop()


class Shown(logging.Formatter):
    """Messages of the log, likewise."""

    def format(self, record: logging.LogRecord) -> str:
        return shown(super().format(record))


def log_to_stderr() -> None:
    """The log as lines that begin with ``isvi:``, unless somebody has set it up already."""
    if not logging.getLogger().handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(Shown("isvi: %(message)s"))
        logging.getLogger().addHandler(handler)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(name): _finite(one) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
