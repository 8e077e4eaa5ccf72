"""Damaged and manipulated files, thousands of them: an error of isvi's own in one line, or the right answer.

A few cases in the ordinary suite; the rest behind the ``slow`` marker. Every case has a seed, which names it.
"""

import json
import logging
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pyarrow
import pytest
from pyarrow import feather, parquet
from support import regression
from support.callbacks import StopAt
from support.hostile import damaged, members, mutated, write_members

import isvi
from isvi.checkpoints.choices import restored
from isvi.checkpoints.identity import differences, read_identity
from isvi.cli.data_file import open_data_file
from isvi.cli.run_folder import Command
from isvi.data import Stream
from isvi.data.opening import open_data

FEW, MANY = 40, 1500
SEEDS = [pytest.param(range(FEW), id="few"), pytest.param(range(FEW, MANY), id="many", marks=pytest.mark.slow)]


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    """A run that was stopped, with its fit."""
    folder = tmp_path_factory.mktemp("fuzz") / "run"
    options: dict[str, Any] = {"algorithm": isvi.SGD(), "budget": 60, "batch_size": 30, "progress": False}
    isvi.fit(regression.model(), regression.data(), checkpoint=folder, callbacks=[StopAt(30)], **options)
    return folder


def in_good_order(attempt: Callable[[], Any], seed: int) -> Any:
    """What the attempt gives, or None if isvi refuses in one line."""
    said = ""
    try:
        return attempt()
    except isvi.IsviError as error:
        said = str(error)
    except Exception as error:
        raise AssertionError(f"seed {seed}: {error!r}") from error
    assert "\n" not in said, f"seed {seed}: {said}"
    return None


@pytest.mark.parametrize("seeds", SEEDS)
def test_descriptions_of_saved_fits(seeds, run, tmp_path):
    path, whole = tmp_path / "it.isvi", members(run / "fit.isvi")
    for seed in seeds:
        generator = np.random.default_rng(seed)
        described = mutated(json.loads(whole["fit.json"]), generator)
        write_members(path, {**whole, "fit.json": json.dumps(described).encode()})
        loaded = in_good_order(lambda: isvi.load(path), seed)
        if loaded is not None and seed % 20 == 0:
            in_good_order(lambda loaded=loaded: str(loaded.summary()), seed)


@pytest.mark.parametrize("seeds", SEEDS)
def test_arrays_of_saved_fits(seeds, run, tmp_path):
    path, whole = tmp_path / "it.isvi", members(run / "fit.isvi")
    for seed in seeds:
        generator = np.random.default_rng(seed)
        write_members(path, {**whole, "params/0.npy": damaged(whole["params/0.npy"], generator)})
        in_good_order(lambda: isvi.load(path), seed)


@pytest.mark.parametrize("seeds", SEEDS)
def test_descriptions_of_runs(seeds, run, tmp_path):
    """``run.json`` and ``command.json``: what is read of them before anything is computed."""
    whole = json.loads((run / "run.json").read_text())
    command = {"model": "model.py", "model_digest": "0", "data": None, "cache": None}
    for seed in seeds:
        generator = np.random.default_rng(seed)
        text = json.dumps(mutated(whole, generator)).encode()
        (tmp_path / "run.json").write_bytes(text if seed % 2 else damaged(text, generator))
        found = in_good_order(lambda: read_identity(tmp_path), seed)
        if found is not None:
            in_good_order(lambda found=found: differences(found, whole), seed)
            in_good_order(lambda found=found: restored(found["options"], list(whole["options"]), {}), seed)
        (tmp_path / "command.json").write_text(json.dumps(mutated(command, generator)))
        in_good_order(lambda: Command.read(tmp_path), seed)


@pytest.mark.parametrize(
    "seeds", [pytest.param(range(3), id="few"), pytest.param(range(3, 60), id="many", marks=pytest.mark.slow)]
)
def test_runs_as_a_whole(seeds, run, tmp_path, caplog):
    """Resumed with a ``run.json`` that was edited, or with damaged checkpoints."""
    caplog.set_level(logging.CRITICAL, "isvi")
    for seed in seeds:
        generator = np.random.default_rng(seed)
        folder = Path(shutil.copytree(run, tmp_path / str(seed)))
        if seed % 2:
            (folder / "run.json").write_text(json.dumps(mutated(json.loads((run / "run.json").read_text()), generator)))
        else:
            newest = max((folder / "checkpoints").iterdir())
            newest.write_bytes(damaged(newest.read_bytes(), generator))
        in_good_order(lambda f=folder: isvi.resume(f, regression.model(), regression.data(), progress=False), seed)


@pytest.mark.parametrize("seeds", SEEDS)
def test_cache_folders(seeds, tmp_path):
    np.save(tmp_path / "y.npy", np.arange(60.0))
    source = isvi.data.Npy({"y": tmp_path / "y.npy"})

    def rows() -> Any:
        return [np.asarray(part.full["y"]) for part in Stream(isvi.data.Cached(source, tmp_path / "cache"), 20).parts()]

    expected = rows()
    (kept,) = (tmp_path / "cache").glob("*/window-0")
    whole = kept.read_bytes()
    for seed in seeds:
        kept.write_bytes(damaged(whole, np.random.default_rng(seed)))
        np.testing.assert_array_equal(in_good_order(rows, seed), expected)


@pytest.mark.parametrize("seeds", SEEDS)
@pytest.mark.parametrize("suffix", ["csv", "parquet", "npy", "npz", "feather"])
def test_data_files(suffix, seeds, tmp_path):
    """Whatever they hold by then: rows, or an error that names the file."""
    whole, path = _written(tmp_path, suffix), tmp_path / f"data.{suffix}"
    for seed in seeds:
        path.write_bytes(damaged(whole, np.random.default_rng(seed)))

        def read() -> None:
            data = open_data(open_data_file(path, None), 10)
            jax.block_until_ready([part.full for part in data.parts()])

        in_good_order(read, seed)


def _written(folder: Path, suffix: str) -> bytes:
    columns = {"a": np.arange(40.0), "b": np.arange(40) % 7}
    path = folder / f"whole.{suffix}"
    if suffix == "csv":
        path.write_text("a,b\n" + "\n".join(f"{a},{b}" for a, b in zip(*columns.values(), strict=True)))
    elif suffix == "parquet":
        parquet.write_table(pyarrow.table(columns), path, row_group_size=15, write_page_checksum=True)
    elif suffix == "npy":
        np.save(path, columns["a"])
    elif suffix == "npz":
        np.savez(path, **columns)
    else:
        feather.write_feather(pyarrow.table(columns), path)
    return path.read_bytes()
