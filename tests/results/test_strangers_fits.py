"""Saved fits from strangers: refused in one line, and without reading what is not needed."""

import io
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.hostile import members, with_json, write_members

import isvi


@pytest.fixture(scope="module")
def saved(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("saved") / "it.isvi"
    latents = {"w": isvi.real(3), "p": isvi.interval(0.0, 2.0)}
    model = isvi.Model(latents, lambda z: -0.5 * (z["w"] ** 2).sum() - z["p"] ** 2)
    isvi.fit(model, algorithm=isvi.SGD(), family=isvi.MeanField(), budget=10, progress=False).save(path)
    return path


@pytest.fixture
def path(saved, tmp_path) -> Path:
    (tmp_path / "it.isvi").write_bytes(saved.read_bytes())
    return tmp_path / "it.isvi"


def refusal(path: Path) -> str:
    with pytest.raises(isvi.CheckpointError) as refused:
        isvi.load(path)
    assert "\n" not in str(refused.value)
    return str(refused.value)


def npy(array: np.ndarray) -> bytes:
    contents = io.BytesIO()
    np.save(contents, array)
    return contents.getvalue()


def set_to(*place: Any, value: Any) -> Callable[[dict], dict]:
    def change(described: dict) -> dict:
        node = described
        for name in place[:-1]:
            node = node[name]
        node[place[-1]] = value
        return described

    return change


FIRST, FACTOR = ("approximation", "latents", 0), ("approximation", "factors", 0)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (set_to(*FIRST, "shape", value=[10**9, 10**9]), "has the shape"),
        (set_to(*FIRST, "shape", value=[-3]), "has the shape"),
        (set_to(*FIRST, "shape", value=["3"]), "has the shape"),
        (set_to(*FIRST, "shape", value=3), "has the shape"),
        (set_to(*FIRST, "name", value=7), "names"),
        (set_to(*FIRST, "name", value="p"), "names"),
        (set_to(*FIRST, "constraint", "kind", value="os.system"), "does not know"),
        (set_to(*FIRST, "constraint", value=None), "NoneType"),
        (set_to("approximation", "latents", 1, "constraint", "parameters", "lower_bound", value="a"), ""),
        (set_to("approximation", "latents", 1, "constraint", "parameters", value={"check": 3}), ""),
        (set_to("approximation", "latents", value=[]), "names"),
        (set_to(*FACTOR, "count", value=10**15), "has count 1000000000000000"),
        (set_to(*FACTOR, "count", value=2), "not over the 4 entries"),
        (set_to(*FACTOR, "count", value="4"), "has count '4'"),
        (set_to("latents", value=["w", "q"]), "not those of the approximation"),
        (set_to("latents", value=None), "not those of the approximation"),
        (set_to("status", value={"kind": "perfect", "message": ""}), "is none of budget"),
        (set_to("status", "message", value=None), "is none of budget"),
        (set_to("history", "elbo", value=[None]), "lists of numbers"),
        (set_to("history", "elbo", value=[1.0]), "of one length"),
        (set_to("gradients", value="many"), "counts and seconds"),
        (set_to("gradients", value=-1), "counts and seconds"),
        (set_to("seconds", value=None), "counts and seconds"),
        (set_to("reports", value=True), "draws"),
        (set_to("format", value=7), "has format 7"),
        (lambda described: [described], "instead of an object"),
        (lambda described: {"format": 1}, "has no approximation"),
    ],
)
def test_manipulated_descriptions(path, change, words):
    with_json(path, "fit.json", change)
    assert words in refusal(path)


@pytest.mark.parametrize(
    ("array", "words"),
    [
        (np.zeros(4, np.complex64), "complex64 instead of real numbers"),
        (np.zeros(5, np.float32), "has shape (5,) instead of (4,)"),
        (np.zeros(4, np.int32), "floating-point"),
        (np.array(["a"] * 4), "instead of real numbers"),
    ],
)
def test_manipulated_parameters(path, array, words):
    write_members(path, {**members(path), "params/0.npy": npy(array)})
    assert words in refusal(path)


def test_a_header_that_promises_more_than_there_is(path):
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f4", "fortran_order": False, "shape": (4,)})
    write_members(path, {**members(path), "params/0.npy": header.getvalue() + bytes(8)})
    assert "ends too early" in refusal(path)


def test_members_that_expand_beyond_measure_are_not_read(path, monkeypatch):
    """Sizes are told by the archive's directory: with limits of kilobytes, a megabyte is as good as a terabyte."""
    monkeypatch.setattr("isvi.core.archives.HARMLESS", 10_000)
    monkeypatch.setattr("isvi.core.archives.LARGEST_DESCRIPTION", 100_000)
    whole = members(path)
    opened: list[str] = []
    real = zipfile.ZipFile.open
    monkeypatch.setattr(
        zipfile.ZipFile, "open", lambda self, name, *a, **k: opened.append(str(name)) or real(self, name, *a, **k)
    )
    write_members(path, {**whole, "params/0.npy": bytes(10**6)})
    opened.clear()
    assert "would expand from" in refusal(path)
    assert not any("params/0" in name for name in opened)
    write_members(path, {**whole, "fit.json": whole["fit.json"] + b" " * 10**6})
    assert "would expand from" in refusal(path)
    write_members(path, {**whole, "unknown.npy": bytes(10**6), "draws2/x.npy": bytes(10**6)})
    opened.clear()
    assert isvi.load(path).gradients == 10  # what nobody asks for is not read
    assert not any("unknown" in name or "draws2" in name for name in opened)
