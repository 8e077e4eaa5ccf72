"""Callbacks are told, may stop a fit, and cannot break it."""

import logging
import sys
from types import SimpleNamespace

import pytest
from support import regression

import isvi


def run(*callbacks: isvi.Callback, **options) -> isvi.Fit:
    settings = {"algorithm": isvi.SGD(), "budget": 50, "batch_size": 30, **options}
    return isvi.fit(regression.model(), regression.data(), callbacks=callbacks, **settings)


class Diary(isvi.Callback):
    def __init__(self) -> None:
        self.entries: list = []

    def on_start(self, budget):
        self.entries.append(("start", budget))

    def on_row(self, row):
        self.entries.append(("row", row.gradients))

    def on_end(self, fit):
        self.entries.append(("end", fit.gradients))


def test_order_and_contents():
    diary = Diary()
    run(diary)
    assert diary.entries[0] == ("start", 50)
    assert diary.entries[1:-1] == [("row", count) for count in range(1, 51)]
    assert diary.entries[-1] == ("end", 50)


@pytest.mark.parametrize("method", ["on_start", "on_row", "on_end"])
def test_one_that_raises_is_told_of_and_left_alone(method, caplog):
    class Broken(isvi.Callback):
        calls = 0

    def broken(self, argument):
        Broken.calls += 1
        raise RuntimeError("no such server")

    setattr(Broken, method, broken)
    with caplog.at_level(logging.ERROR, "isvi"):
        fit = run(Broken())
    assert fit.status.kind == "budget"
    assert Broken.calls == 1
    assert "no such server" in caplog.text


def test_tensorboard(tmp_path):
    pytest.importorskip("tensorboardX", reason="the extra isvi[tensorboard] is not installed")
    run(isvi.TensorBoard(str(tmp_path)))
    (log,) = tmp_path.iterdir()
    contents = log.read_bytes()
    assert b"isvi/elbo" in contents
    assert b"isvi/status" in contents


def test_mlflow(monkeypatch):
    """Against a stand-in: the real one wants a store."""
    said: list = []
    stand_in = SimpleNamespace(
        active_run=lambda: None,
        start_run=lambda **options: said.append(("start", options)),
        log_param=lambda name, value: said.append((name, value)),
        log_metrics=lambda numbers, step: said.append((step, sorted(numbers))),
        set_tag=lambda name, value: said.append((name, value)),
        end_run=lambda: said.append("end"),
    )
    monkeypatch.setitem(sys.modules, "mlflow", stand_in)
    run(isvi.MLflow(run_name="flights"), budget=2)
    assert said[:2] == [("start", {"run_name": "flights"}), ("isvi.budget", 2)]
    assert said[2][0] == 1
    assert "isvi.elbo" in said[2][1]
    assert said[-2][0] == "isvi.status"
    assert said[-1] == "end"


def test_missing_packages_are_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "mlflow", None)
    with pytest.raises(isvi.ConfigurationError, match=r"pip install 'isvi\[mlflow\]'"):
        isvi.MLflow()
