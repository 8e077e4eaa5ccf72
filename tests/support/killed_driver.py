"""A fit with workers, to be killed, and gone on with: ``python killed_driver.py RUN NOTES KIND``."""

import multiprocessing
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from support import sent

import isvi

TIME_LIMIT = 900.0
"""Used up only where something hangs: a busy machine takes minutes to start Python."""
OPTIONS = sent.OPTIONS | {"budget": 300}


class Noted:
    """The gradient, by a process that notes its number, and takes long enough to be killed in between."""

    def __init__(self, notes: Path) -> None:
        self.notes, self.driver = notes, os.getpid()

    def __call__(self, z: dict, rows: dict) -> tuple[float, dict]:
        if os.getpid() != self.driver:
            (self.notes / str(os.getpid())).touch()
            time.sleep(0.02)
        return sent.value_and_grad(z, rows)


def processes() -> ProcessPoolExecutor:
    return ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn"))


def workers(kind: str) -> Any:
    if kind == "ray":
        return isvi.Ray(num_workers=2, time_limit=TIME_LIMIT)
    return isvi.Pool(processes, time_limit=TIME_LIMIT)


def fit_or_resume(run: Path, notes: Path, kind: str) -> isvi.Fit:
    checkpoint, model = isvi.Checkpoint(run, every=0.05), sent.on_host(Noted(notes))
    if (run / "run.json").exists():
        return isvi.resume(checkpoint, model, sent.data(), workers=workers(kind), progress=False)
    return isvi.fit(model, sent.data(), workers=workers(kind), checkpoint=checkpoint, **OPTIONS)


if __name__ == "__main__":
    fit_or_resume(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
