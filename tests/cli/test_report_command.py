"""``isvi report``: a run's folder as one HTML file."""

from pathlib import Path

import numpy as np
import pytest
from support import regression
from typer.testing import CliRunner

from isvi.cli.main import app

pytest.importorskip("matplotlib", reason="matplotlib is not installed: pip install 'isvi[plots]'")

MODEL = """
import isvi
from jax.scipy.stats import norm

# the noise is known
model = isvi.Model(
    {"w": isvi.real(3)},
    log_prior=lambda z: norm.logpdf(z["w"]).sum(),
    log_likelihood=lambda z, rows: norm.logpdf(rows["y"], rows["x"] @ z["w"], 0.5).sum(),
)
"""


def run(*arguments: object) -> tuple[int, str]:
    found = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if found.exception is not None and not isinstance(found.exception, SystemExit):
        raise found.exception
    return found.exit_code, found.output


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    (folder / "model.py").write_text(MODEL)
    np.savez(folder / "data.npz", **regression.data())
    code, _ = run("fit", folder / "model.py", "--data", folder / "data.npz", "--out", folder / "run", "--quiet")
    assert code == 0
    return folder


def test_a_report_of_a_run(folder):
    code, output = run("report", folder / "run", "--draws", 200)
    assert code == 0
    assert "report.html" in output
    text = (folder / "run" / "report.html").read_text()
    assert "# the noise is known" in text  # the whole model file, comments included
    assert '<div class="verdict good">' in text


def test_to_another_place(folder):
    assert run("report", folder / "run", "--draws", 200, "--out", folder / "other.html")[0] == 0
    assert (folder / "other.html").is_file()
