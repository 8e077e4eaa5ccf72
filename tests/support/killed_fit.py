"""A small fit that goes on where it was killed: ``python killed_fit.py FOLDER [stay]``.

With ``stay`` it does not end by itself: at its last row it makes ``FOLDER/near-the-end`` and waits to be killed.
"""

import signal
import sys
import time
from pathlib import Path

import numpy as np
from jax.scipy.stats import norm

import isvi
from isvi.fitting.running.progress import Row

BUDGET = 300


class Slow(isvi.Callback):
    """Rows that take a while, so that moments fall into different ones; and perhaps a last one that does not end."""

    def __init__(self, stay: Path | None) -> None:
        self.stay = stay

    def on_row(self, row: Row) -> None:
        time.sleep(0.03)
        if self.stay is not None and row.gradients >= BUDGET:
            (self.stay / "near-the-end").touch()
            while True:
                signal.pause()


def model() -> isvi.Model:
    return isvi.Model(
        {"w": isvi.real(4)},
        lambda z: norm.logpdf(z["w"]).sum(),
        lambda z, rows: norm.logpdf(rows["y"], rows["x"] @ z["w"]).sum(),
    )


def data() -> dict[str, np.ndarray]:
    x = np.random.default_rng(3).normal(size=(400, 4))
    return {"x": x, "y": x.sum(axis=1)}


def fit(**options) -> isvi.Fit:
    return isvi.fit(model(), data(), algorithm=isvi.ISGD(), budget=BUDGET, batch_size=20, **options)


def fit_or_resume(folder: Path, stay: bool) -> isvi.Fit:
    checkpoint, slow = isvi.Checkpoint(folder, every=0.05), Slow(folder if stay else None)
    if (folder / "run.json").exists():
        return isvi.resume(checkpoint, model(), data(), callbacks=[slow])
    return fit(checkpoint=checkpoint, callbacks=[slow])


if __name__ == "__main__":
    fit_or_resume(Path(sys.argv[1]), stay="stay" in sys.argv[2:])
