"""A small fit that goes on where it was killed: ``python killed_fit.py FOLDER``."""

import sys
import time
from pathlib import Path

import numpy as np
from jax.scipy.stats import norm

import isvi


class Slow(isvi.Callback):
    """There must be time to be killed in."""

    def on_row(self, row: object) -> None:
        time.sleep(0.03)


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
    return isvi.fit(model(), data(), algorithm=isvi.ISGD(), budget=300, batch_size=20, **options)


def fit_or_resume(folder: Path) -> isvi.Fit:
    checkpoint = isvi.Checkpoint(folder, every=0.05)
    if (folder / "run.json").exists():
        return isvi.resume(checkpoint, model(), data(), callbacks=[Slow()])
    return fit(checkpoint=checkpoint, callbacks=[Slow()])


if __name__ == "__main__":
    fit_or_resume(Path(sys.argv[1]))
