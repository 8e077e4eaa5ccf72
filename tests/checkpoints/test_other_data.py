"""A run goes on only with the data that it began with, also where they are not in memory."""

import os
import shutil
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from support import files, regression
from support.callbacks import StopAt

import isvi
from isvi.data import checksums
from isvi.data.checksums import checksum, fingerprints

OPTIONS: dict[str, Any] = {"algorithm": isvi.SGD(), "batch_size": 9, "budget": 300, "progress": False}


def rows() -> dict[str, np.ndarray]:
    return regression.data()


def changed() -> dict[str, np.ndarray]:
    """One number near the end, of another window than the first."""
    found = rows()
    found["y"][-2] += 0.5
    return found


def stopped(folder: Path, source: Any, row: int = 60) -> None:
    fit = isvi.fit(regression.model(), source, checkpoint=folder, callbacks=[StopAt(row)], **OPTIONS)
    assert fit.status.kind == "interrupted"


@pytest.mark.parametrize("kind", ["parquet", "npy", "zarr"])
def test_changed_files_are_refused_at_the_start(kind, tmp_path):
    stopped(tmp_path / "run", files.make_source(kind, tmp_path / "a", rows()))
    shutil.copytree(tmp_path / "a", tmp_path / "copy")
    with pytest.raises(isvi.CheckpointError, match=r"data: file .* was .* bytes"):
        isvi.resume(tmp_path / "run", regression.model(), files.make_source(kind, tmp_path / "b", changed()))
    again = files.make_source(kind, tmp_path / "copy", rows())  # elsewhere, at another time: as good
    assert isvi.resume(tmp_path / "run", regression.model(), again, progress=False).gradients == 300


@pytest.mark.parametrize("cached", [False, True], ids=["plain", "cached"])
def test_what_the_files_do_not_tell_is_noticed_when_it_is_read(cached, tmp_path):
    """A loader has no files: its windows are compared with those that the run saw, when they come up."""

    def source(data: dict[str, np.ndarray]) -> isvi.data.Source:
        made = files.make_source("loader", tmp_path, data)
        return isvi.data.Cached(made, tmp_path / "cache") if cached else made

    stopped(tmp_path / "run", source(rows()))
    with pytest.raises(isvi.DataError, match=r"window-[1-9] of the data holds other rows than") as refused:
        isvi.resume(tmp_path / "run", regression.model(), source(changed()), progress=False)
    assert refused.value.fit.status.kind == "interrupted"  # type: ignore[attr-defined]
    whole = isvi.fit(regression.model(), source(rows()), **OPTIONS)
    resumed = isvi.resume(tmp_path / "run", regression.model(), source(rows()), progress=False)
    for mine, yours in zip(jax.tree.leaves(whole.params), jax.tree.leaves(resumed.params), strict=True):
        np.testing.assert_array_equal(mine, yours)


def test_a_model_that_keeps_its_rows_to_itself(tmp_path):
    """Mini-batches of a callable hold numbers of rows only."""

    def value_and_grad(z: dict[str, np.ndarray], batch: dict[str, np.ndarray]) -> tuple[float, dict[str, np.ndarray]]:
        off = batch["y"] - z["m"]
        return -0.5 * float(off @ off), {"m": off.sum()}

    model = isvi.from_gradient(value_and_grad, {"m": isvi.real()}, log_prior=lambda z: -0.5 * z["m"] ** 2)
    y = np.arange(40.0) / 40
    options = {**OPTIONS, "budget": 50}
    isvi.fit(model, {"y": y}, checkpoint=tmp_path, callbacks=[StopAt(10)], **options)
    with pytest.raises(isvi.CheckpointError, match="data: sum of the model's own rows"):
        isvi.resume(tmp_path, model, {"y": np.where(np.arange(40) == 17, 5.0, y)})
    assert isvi.resume(tmp_path, model, {"y": y}, progress=False).gradients == 50


def test_a_sum_notices_order_type_and_shape():
    values = np.arange(6, dtype=np.int32)
    others = [values[::-1], values.astype(np.int64), values.reshape(2, 3), values.view(np.float32), values[:5]]
    sums = [checksum([other]) for other in (values, *others)]
    assert len(set(sums)) == len(sums)
    assert checksum([values[::2], values[1::2]]) != checksum([values[1::2], values[::2]])
    assert checksum([np.arange(6, dtype=np.int32)]) == sums[0]


@pytest.mark.parametrize("whole", [True, False], ids=["whole", "sampled"])
def test_fingerprints_of_files(whole, tmp_path, monkeypatch):
    """Sampled ones notice what is large, and what is at the ends; and take no heed of place and time."""
    if not whole:
        monkeypatch.setattr(checksums, "READ_WHOLE", 1000)
    content = np.random.default_rng(0).bytes(400_000)
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        for name in ("one", "two"):
            (tmp_path / folder / name).write_bytes(content)
            os.utime(tmp_path / folder / name, (ord(folder), ord(folder)))

    def found(folder: str) -> dict[str, str]:
        return fingerprints([tmp_path / folder / "one", tmp_path / folder / "two"])

    before = found("a")
    assert sorted(before) == ["one", "two"]
    assert found("b") == before
    for damaged in (content[:-1], content[:-1] + b"\0", b"\0" + content[1:], content[:200_000] + bytes(200_000)):
        (tmp_path / "b" / "two").write_bytes(damaged)
        assert found("b") != before
    monkeypatch.setattr(checksums, "NAMED", 1)
    assert list(found("a")) == ["files"]
    assert found("a") != found("b")
