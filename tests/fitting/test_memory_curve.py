"""A long run needs no more memory at its end than at its beginning."""

import numpy as np
import psutil
import pytest
from support import regression

import isvi


class Resident(isvi.Callback):
    """Notes the memory of this process, in megabytes."""

    def __init__(self) -> None:
        self.curve: list[float] = []

    def on_row(self, row):
        self.curve.append(psutil.Process().memory_info().rss / 1e6)


def climb(steps: int, **options) -> float:
    """Megabytes gained between a fifth of the run and its end, by a line through the curve."""
    memory = Resident()
    fit = isvi.fit(
        regression.model(),
        regression.data(),
        budget=steps,
        batch_size=regression.BATCH_SIZE,
        callbacks=[memory],
        **options,
    )
    assert fit.gradients == steps
    curve = memory.curve[len(memory.curve) // 5 :]
    slope, _ = np.polyfit(np.linspace(0, 1, len(curve)), curve, 1)
    return float(slope)


def test_ten_thousand_steps(tmp_path):
    """With checkpoints. A leak of one record per step would be 10,000 times 100 bytes; of one state, far more."""
    assert climb(10_000, algorithm=isvi.ISAG(), checkpoint=isvi.Checkpoint(tmp_path, every=0.5)) < 20


@pytest.mark.slow
def test_a_million_steps(tmp_path):
    assert climb(1_000_000, algorithm=isvi.ISAG(), checkpoint=isvi.Checkpoint(tmp_path, every=10.0)) < 20
