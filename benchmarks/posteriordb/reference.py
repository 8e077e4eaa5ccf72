"""The reference posteriors: where they are, and how a result compares with them."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from benchmarks.posteriordb.models import MODELS, Problem

WANTED = "a folder with one folder per posterior, each with data.json and reference.json"


class DataAbsent(Exception):
    """The reference posteriors are not there."""


@dataclass(frozen=True)
class Posterior:
    """One of the reference posteriors."""

    name: str
    folder: Path

    @property
    def short(self) -> str:
        return self.name.split("-")[0]

    @cached_property
    def problem(self) -> Problem:
        return MODELS[self.name](json.loads((self.folder / "data.json").read_text()))

    @cached_property
    def _reference(self) -> dict:
        return json.loads((self.folder / "reference.json").read_text())

    @property
    def parameters(self) -> list[str]:
        return self._reference["parameters"]

    @property
    def mean(self) -> np.ndarray:
        return np.asarray(self._reference["mean"])

    @property
    def sd(self) -> np.ndarray:
        return np.asarray(self._reference["sd"])

    def pick(self, values: Mapping[str, np.ndarray]) -> np.ndarray:
        """The reference's parameters, ``(..., parameters)``, out of named arrays: ``beta[1]`` is the first entry."""
        return np.stack([_entry(values, parameter) for parameter in self.parameters], axis=-1)


def _entry(values: Mapping[str, np.ndarray], parameter: str) -> np.ndarray:
    name, _, index = parameter.rstrip("]").partition("[")
    return values[name][..., int(index) - 1] if index else values[name]


def find(path: Path, only: str | None = None) -> list[Posterior]:
    """The posteriors under a path whose names contain ``only``."""
    if not path.is_dir():
        raise DataAbsent(f"There are no reference posteriors at {path}: expected {WANTED}. Pass its path as --data.")
    found = [Posterior(name, path / name) for name in MODELS if (only or "") in name]
    if not found:
        raise DataAbsent(f"No posterior is called like {only!r}; there are {', '.join(MODELS)}.")
    missing = [one.name for one in found if not (one.folder / "reference.json").is_file()]
    if missing:
        raise DataAbsent(f"{path} lacks {', '.join(missing)}: expected {WANTED}.")
    return found
