"""``--json``: one valid JSON object on standard output, however a command ends."""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from isvi.cli import exits
from isvi.cli import main as command_line

MODEL = """
import isvi

print("loaded")
columns = ["y"]
model = isvi.Model(
    {"w": isvi.real()},
    lambda z: -0.5 * z["w"] ** 2,
    lambda z, rows: -0.5 * ((rows["y"] - z["w"]) ** 2).sum(),
)
"""
RAISES = MODEL.replace('rows["y"] - z', 'rows["y"] - 1 / 0 - z')
QUICK = ["--algorithm", "sgd", "--budget", "20", "--quiet", "--json"]


@pytest.fixture
def answer(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path):
    """``answer("fit", ...) -> (exit code, what was said in JSON, standard error)``, in a folder with files to fit."""
    monkeypatch.chdir(tmp_path)
    Path("model.py").write_text(MODEL)
    Path("raises.py").write_text(RAISES)
    np.savez("data.npz", y=np.arange(5.0))
    np.save("data.npy", np.arange(5.0))

    def answer(*arguments: str) -> tuple[int, dict[str, Any], str]:
        monkeypatch.setattr(sys, "argv", ["isvi", *arguments])
        with pytest.raises(SystemExit) as stop:
            command_line.main()
        printed = capsys.readouterr()
        assert printed.out.count("\n") == 1
        found = json.loads(printed.out, parse_constant=pytest.fail)
        assert isinstance(found, dict)
        assert isinstance(stop.value.code, int)
        return stop.value.code, found, printed.err

    return answer


def test_a_result_with_a_model_file_that_prints(answer):
    code, found, said = answer("fit", "model.py", "--data", "data.npz", "--out", "run", *QUICK)
    assert (code, found["status"]) == (exits.DONE, "budget")
    assert "loaded" in said
    assert answer("summary", "run", "--json")[1]["posterior"] == found["posterior"]
    assert "verdict" in answer("diagnose", "run", "--draws", "50", "--json")[1]


@pytest.mark.parametrize(
    ("arguments", "code", "kind", "words"),
    [
        (["fit", "none.py", "--out", "run"], exits.REFUSED, "ConfigurationError", "no model file"),
        (["fit", "model.py", "--data", "none.csv", "--out", "run"], exits.REFUSED, "DataError", "no data at"),
        (
            ["fit", "model.py", "--data", "data.npy", "--out", "run"],
            exits.REFUSED,
            "ConfigurationError",
            "names columns",
        ),
        (["fit", "raises.py", "--data", "data.npz", "--out", "run"], exits.REFUSED, "ZeroDivisionError", "division"),
        (["fit", "--resume", "none"], exits.REFUSED, "CheckpointError", "none"),
        (["fit", "model.py", "--budget", "-3", "--out", "run"], exits.USAGE, "UsageError", "--budget"),
        (["fit", "--nonsense"], exits.USAGE, "UsageError", "--nonsense"),
        (["fit"], exits.USAGE, "UsageError", "--out"),
        (["nonsense"], exits.USAGE, "UsageError", "nonsense"),
        (["summary", "none"], exits.REFUSED, "CheckpointError", "no saved fit"),
        (["summary", "model.py"], exits.REFUSED, "CheckpointError", "not a fit"),
        (["diagnose", "none"], exits.REFUSED, "CheckpointError", "none"),
    ],
)
def test_errors(answer, arguments, code, kind, words):
    found_code, found, said = answer(*arguments, "--json")
    assert (found_code, found["error"]) == (code, kind)
    assert words in found["message"]
    assert found["message"].splitlines()[0] in said
    assert ("Traceback" in said) == (kind == "ZeroDivisionError")


def test_ctrl_c_before_there_is_a_result(answer, monkeypatch):
    def stop(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("isvi.cli.model_file._executed", stop)
    code, found, _ = answer("fit", "model.py", "--out", "run", "--json")
    assert (code, found["error"]) == (exits.INTERRUPTED, "Interrupted")
