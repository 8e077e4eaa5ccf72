"""A fit that came to nothing is not a success, and is valid JSON all the same."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from isvi.cli import exits
from isvi.cli.main import app
from isvi.cli.plain import as_json_text

FLAT = """
import isvi

model = isvi.Model({"w": isvi.real(), "flat": isvi.real()}, lambda z: -0.5 * z["w"] ** 2 + 0 * z["flat"])
"""


def refuse(token: str) -> None:
    raise ValueError(f"{token} is no JSON")


def test_a_flat_latent(tmp_path):
    """Its posterior cannot be normalised: the fit did not work, and says which latent is the cause."""
    (tmp_path / "model.py").write_text(FLAT)
    ran = CliRunner().invoke(
        app, ["fit", str(tmp_path / "model.py"), "--out", str(tmp_path / "run"), "--json", "--quiet"]
    )
    told = json.loads(ran.stdout, parse_constant=refuse)
    assert ran.exit_code == exits.DIVERGED
    assert told["status"] == "diverged"
    assert "the posterior of flat has no end" in told["message"]
    assert told["posterior"]["w"]["sd"] == pytest.approx(1, rel=0.05)


def test_json_has_null_for_what_is_not_finite():
    text = as_json_text({"a": [1.0, np.nan, -np.inf], "b": (np.float64("nan"), "NaN")})
    assert json.loads(text, parse_constant=refuse) == {"a": [1.0, None, None], "b": [None, "NaN"]}
