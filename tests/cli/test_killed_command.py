"""``isvi fit``, killed whenever something new is seen in its folder, and gone on with."""

import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from support import regression

MODEL = """
import isvi
from jax.scipy.stats import norm

model = isvi.Model(
    {"w": isvi.real(3)},
    log_prior=lambda z: norm.logpdf(z["w"]).sum(),
    log_likelihood=lambda z, rows: norm.logpdf(rows["y"], rows["x"] @ z["w"], 0.5).sum(),
)
"""
SIGNS = ("run.lock", "command.json", "run.json", "checkpoints/*", "fit.isvi")
"""What appears in a run's folder, in this order."""


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-c", "from isvi.cli.main import main; main()", "fit", *map(str, arguments)]


def begin(folder: Path, run: Path) -> list[str]:
    """As a user would: go on with the run if there is one, else start it."""
    if (run / "run.json").exists():
        return command("--resume", run, "--checkpoint-every", 0, "--json", "--quiet")
    options = ["--algorithm", "isgd", "--budget", 3000, "--batch-size", 30, "--checkpoint-every", 0]
    return command(folder / "model.py", "--data", folder / "data.npz", "--out", run, *options, "--json", "--quiet")


def killed_at(sign: str, folder: Path, run: Path) -> int:
    """The exit code of a process that is killed when this appears, unless it is over before."""
    seen = set(run.glob(sign))
    process = subprocess.Popen(begin(folder, run), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while process.poll() is None and set(run.glob(sign)) <= seen:
        time.sleep(0.001)
    process.kill()
    return process.wait()


def finished(folder: Path, run: Path) -> dict:
    done = subprocess.run(begin(folder, run), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.slow
def test_a_command_that_is_killed_at_every_phase(tmp_path: Path) -> None:
    """What comes out is as if it had not been."""
    (tmp_path / "model.py").write_text(MODEL)
    np.savez(tmp_path / "data.npz", **regression.data())
    whole = finished(tmp_path, tmp_path / "whole")
    codes = [killed_at(sign, tmp_path, tmp_path / "run") for sign in SIGNS]
    assert codes.count(-9) >= 3, codes
    resumed = finished(tmp_path, tmp_path / "run")
    for told in ("status", "gradients", "steps", "posterior"):
        assert resumed[told] == whole[told]
