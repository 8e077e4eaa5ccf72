"""The models in Stan, a program each; parameters are called as in NumPyro, so that they share their references."""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import isvi
from benchmarks.models.case import Case
from benchmarks.models.shared import named_alike

INDICES = ("county", "student", "item", "home", "away", "dept")
"""Columns that count from 1 in Stan."""
CLASSES = {"ordinal": "Y"}
PROGRAMS = {path.stem: path for path in sorted(Path(__file__).parent.glob("*.stan"))}


def program(name: str) -> Path:
    return PROGRAMS[name]


CASES = {case.name: case for case in named_alike({name: partial(program, name) for name in PROGRAMS})}


def data(case: Case) -> dict[str, Any]:
    """The data under Stan's rules: indices from 1, sizes given, and no variable called like a function."""
    values = case.data().everything
    one_based = {*INDICES, CLASSES.get(case.name, "")}
    values = {name: np.asarray(value) + (name in one_based) for name, value in values.items()}
    values = {("floor_measure" if name == "floor" else name): value for name, value in values.items()}
    series = [value for value in values.values() if np.ndim(value) >= 1]
    if series:
        values |= {"N": len(series[0]), "T": len(series[0])}
    matrices = [value for name, value in values.items() if name in ("X", "x") and np.ndim(value) == 2]
    return values | ({"D": matrices[0].shape[1]} if matrices else {})


def given(case: Case) -> tuple[Any, Any]:
    """The model and the data, as they are passed to ``isvi.fit``: Stan's programs have their data."""
    return isvi.from_stan(case.model(), data(case)), None
