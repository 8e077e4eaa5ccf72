"""Results on disk: a row per run, replaced when the run is done again."""

import csv
import math
from collections.abc import Callable, Iterable
from dataclasses import fields
from pathlib import Path
from typing import Any

from benchmarks.models.measure import Errors, Result

RESULTS = Path(__file__).parents[1] / "results" / "models.csv"
PLAIN = [field.name for field in fields(Result) if field.name not in ("errors", "resampled")]
ERRORS = [field.name for field in fields(Errors)]
COLUMNS = [*PLAIN, *ERRORS, *(f"resampled_{name}" for name in ERRORS)]


def _number(text: str) -> float:
    return float(text) if text else math.nan


READ: dict[str, Callable[[str], Any]] = {
    "gradients": int, "seed": int, "seconds": _number, "k_hat": _number, "elbo": _number
}  # fmt: skip


def read(path: Path = RESULTS) -> list[Result]:
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return [_result(row) for row in csv.DictReader(file)]


def add(results: Iterable[Result], path: Path = RESULTS) -> None:
    """Written next to those that are there; the same model, method and seed is replaced."""
    found = {_key(result): result for result in [*read(path), *results]}
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows(_row(found[key]) for key in sorted(found))


def _key(result: Result) -> tuple[str, str, str, int]:
    return result.language, result.model, result.method, result.seed


def _row(result: Result) -> list[str]:
    plain = [_text(getattr(result, name)) for name in PLAIN]
    return plain + [_text(getattr(errors, name)) for errors in (result.errors, result.resampled) for name in ERRORS]


def _text(value: object) -> str:
    if isinstance(value, float):
        return "" if math.isnan(value) else f"{value:.5g}"
    return str(value)


def _result(row: dict[str, str]) -> Result:
    def errors(prefix: str) -> Errors:
        return Errors(*(_number(row[prefix + name]) for name in ERRORS[:3]), row[prefix + "where"])

    plain = {name: READ.get(name, str)(row.get(name, "")) for name in PLAIN}
    return Result(**plain, errors=errors(""), resampled=errors("resampled_"))
