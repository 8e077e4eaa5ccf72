"""``isvi fit``, ``summary`` and ``diagnose``: what a script can rely on."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pyarrow
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import parquet
from support import regression
from typer.testing import CliRunner

from isvi.cli import exits
from isvi.cli.main import app
from isvi.core.errors import IsviError

MODEL = """
import isvi
from jax.scipy.stats import norm

columns = {"x": ["a", "b", "c"], "y": "y"}
model = isvi.Model(
    {"w": isvi.real(3)},
    log_prior=lambda z: norm.logpdf(z["w"]).sum(),
    log_likelihood=lambda z, rows: norm.logpdf(rows["y"], rows["x"] @ z["w"], 0.5).sum(),
)
"""
NUMPYRO_MODEL = """
import numpyro
import numpyro.distributions as dist

columns = ["a", "y"]


def model(a, y):
    slope = numpyro.sample("slope", dist.Normal(0, 1))
    with numpyro.plate("rows", len(a)):
        numpyro.sample("y", dist.Normal(slope * a, 0.5), obs=y)
"""
QUICK = ["--algorithm", "sgd", "--budget", "200", "--batch-size", "30", "--quiet"]


class Result:
    """What a command printed, and how it ended: as the entry point would end it."""

    def __init__(self, *arguments: object) -> None:
        ran = CliRunner().invoke(app, [str(argument) for argument in arguments])
        self.refused = str(ran.exception) if isinstance(ran.exception, IsviError) else ""
        self.code = exits.REFUSED if self.refused else ran.exit_code
        self.output = ran.output
        if ran.exception is not None and not self.refused and not isinstance(ran.exception, SystemExit):
            raise ran.exception

    @property
    def json(self) -> dict:
        return json.loads(self.output)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("cli")
    (folder / "model.py").write_text(MODEL)
    (folder / "numpyro_model.py").write_text(NUMPYRO_MODEL)
    rows = regression.data()
    table = {**{name: rows["x"][:, i] for i, name in enumerate("abc")}, "y": rows["y"]}
    np.savez(folder / "data.npz", **table)
    lines = [",".join(map(repr, row)) for row in np.stack(list(table.values()), axis=1).tolist()]
    (folder / "data.csv").write_text("\n".join([",".join(table), *lines]))
    return folder


@pytest.fixture(scope="module")
def run(folder) -> Path:
    result = Result("fit", folder / "model.py", "--data", folder / "data.npz", "--out", folder / "run", *QUICK)
    assert result.code == exits.DONE
    assert "w[2]" in result.output
    return folder / "run"


def test_summary(run):
    found = Result("summary", run, "--json").json
    assert found["status"] == "budget"
    assert found["gradients"] == 200
    # Half a posterior sd is far more than what is left after 40 passes.
    centre, precision = regression.posterior()
    for entry, (mean, spread) in enumerate(zip(centre, np.diag(precision) ** -0.5, strict=True)):
        assert found["posterior"][f"w[{entry}]"]["mean"] == pytest.approx(mean, abs=0.5 * spread)
    assert "w[2]" in Result("summary", run).output


def test_diagnose(run):
    found = Result("diagnose", run, "--draws", 200, "--json")
    assert found.json["verdict"] in ("good", "usable", "poor")
    assert found.code == (exits.POOR if found.json["verdict"] == "poor" else exits.DONE)


def test_csv_gives_the_same_as_npz(folder, run, tmp_path):
    arguments = ["fit", folder / "model.py", "--data", folder / "data.csv", "--out", tmp_path / "run", *QUICK, "--json"]
    assert Result(*arguments).json["posterior"] == Result("summary", run, "--json").json["posterior"]


def test_a_numpyro_model_function(folder, tmp_path):
    result = Result(
        "fit", folder / "numpyro_model.py", "--data", folder / "data.npz", "--out", tmp_path / "run", *QUICK, "--json"
    )
    assert list(result.json["posterior"]) == ["slope"]


def test_a_finished_run_resumes_to_itself(run):
    again = Result("fit", "--resume", run, "--json", "--quiet")
    assert again.json["posterior"] == Result("summary", run, "--json").json["posterior"]


def test_a_cache_is_used_and_remembered(folder, tmp_path):
    with np.load(folder / "data.npz") as rows:
        table = pyarrow.table(dict(rows))
    parquet.write_table(table, tmp_path / "data.parquet", row_group_size=20)
    arguments = ["fit", folder / "model.py", "--data", tmp_path / "data.parquet", *QUICK, "--json"]
    plain = Result(*arguments, "--out", tmp_path / "plain").json["posterior"]
    cache = tmp_path / "cache"
    assert Result(*arguments, "--out", tmp_path / "run", "--cache", cache).json["posterior"] == plain
    for more in ([], ["--cache", tmp_path / "other"]):
        shutil.rmtree(cache)
        again = Result("fit", "--resume", tmp_path / "run", *more, "--quiet", "--json")
        assert again.json["posterior"] == plain
        cache = more[-1] if more else cache
        assert [path.name for path in cache.glob("*/window-0")] == ["window-0"]


def test_a_cache_for_what_is_in_memory_is_refused(folder, tmp_path):
    arguments = ["fit", folder / "model.py", "--out", tmp_path / "run", "--cache", tmp_path / "cache"]
    assert "Leave --cache out" in Result(*arguments, "--data", folder / "data.npz").refused
    assert Result(*arguments).code == exits.USAGE


def test_a_changed_model_is_refused(folder, run, tmp_path):
    (tmp_path / "model.py").write_text(MODEL + "\n# changed")
    result = Result("fit", "--resume", run, tmp_path / "model.py")
    assert result.code == exits.REFUSED
    assert "has changed since the run was started" in result.refused


def test_a_taken_folder_is_refused(folder, run):
    result = Result("fit", folder / "model.py", "--data", folder / "data.npz", "--out", run)
    assert "--resume" in result.refused


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1", "must define `model`.* It defines x"),
        ("model = 3", "it is int"),
        ("model = (", "line 1: SyntaxError"),
        ("\n\nmodel = unknown", "line 3: NameError"),
        ("def model(a, z): ...", "missing a required argument: 'z'|unexpected keyword argument 'b'"),
    ],
)
def test_bad_model_files(folder, tmp_path, text, message):
    (tmp_path / "bad.py").write_text(text)
    result = Result("fit", tmp_path / "bad.py", "--data", folder / "data.npz", "--out", tmp_path / "run", *QUICK)
    assert result.code == exits.REFUSED
    assert re.search(message, result.refused), result.refused


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("data.csv", "a,b\n1,2\n3", "cannot be read as CSV"),
        ("data.csv", "a,b,c\n1,2,3\n", "has no column y"),
        ("data.npz", "nothing", "cannot be read as .npz"),
        ("data.parquet", "nothing", r"data\.parquet"),
        ("data.xls", "nothing", "does not know how to read"),
    ],
)
def test_bad_data_files(folder, tmp_path, name, content, message):
    (tmp_path / name).write_text(content)
    result = Result("fit", folder / "model.py", "--data", tmp_path / name, "--out", tmp_path / "run", *QUICK)
    assert result.code == exits.REFUSED
    assert re.search(message, result.refused), result.refused


@pytest.mark.parametrize(
    "arguments",
    [["fit"], ["fit", "model.py"], ["fit", "--family", "cubic"], ["fit", "--budget", "-1"], ["summary"], ["nonsense"]],
)
def test_wrong_usage(arguments):
    assert Result(*arguments).code == exits.USAGE


WORDS = ["fit", "summary", "diagnose", "--data", "--out", "--resume", "--json", "--seed", "--budget"]
NOISE = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=8)
ARGUMENT = st.one_of(st.sampled_from(WORDS), NOISE.filter(lambda text: text != "demo"), st.integers(-3, 3).map(str))


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(ARGUMENT, max_size=6))
def test_any_command_line_ends_in_good_order(tmp_path, monkeypatch, arguments):
    """Whatever is typed: help, a refusal in one message, or wrong usage; never a traceback."""
    monkeypatch.chdir(tmp_path)
    assert Result(*arguments).code in (exits.DONE, exits.REFUSED, exits.USAGE)


def test_an_address_without_workers_is_refused(tmp_path):
    found = Result("fit", tmp_path / "model.py", "--out", tmp_path / "run", "--ray-address", "auto")
    assert found.code == 2
    assert "--workers 8" in found.output
