"""The folder of a run: one process at a time, and what happens when it cannot be written to, or goes away."""

import logging
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import optax
import pytest
from support import regression
from support.callbacks import StopAt

import isvi
from isvi.checkpoints.leaves import digest_of
from isvi.checkpoints.lock import FILE, RunLock
from isvi.core.archives import Archive, write_archive

HOLD = """
import sys
from pathlib import Path
from isvi.checkpoints.lock import RunLock

with RunLock(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""
OPTIONS: dict[str, Any] = {
    "algorithm": isvi.SGD(),
    "budget": 60,
    "batch_size": regression.BATCH_SIZE,
    "progress": False,
}


def fit(folder: Path, **options: Any) -> isvi.Fit:
    return isvi.fit(regression.model(), regression.data(), checkpoint=folder, **{**OPTIONS, **options})


def test_a_folder_in_use_is_refused_until_its_process_ends(tmp_path):
    """However it ends: here, killed."""
    other = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert other.stdout is not None
    assert other.stdout.readline() == b"held\n"
    with pytest.raises(isvi.CheckpointError, match=rf"is in use: process {other.pid} on"):
        fit(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [FILE]
    other.kill()
    other.communicate()
    assert fit(tmp_path).gradients == 60


def test_threads_keep_out_of_each_others_folder(tmp_path):
    refused: list[isvi.CheckpointError] = []

    def enter() -> None:
        try:
            with RunLock(tmp_path):
                pass
        except isvi.CheckpointError as error:
            refused.append(error)

    with RunLock(tmp_path), RunLock(tmp_path):  # who holds it may enter it again
        thread = threading.Thread(target=enter)
        thread.start()
        thread.join()
    assert len(refused) == 1
    enter()
    assert len(refused) == 1


class Does(isvi.Callback):
    """Does something in the middle of a fit."""

    def __init__(self, action) -> None:
        self.action, self.rows = action, 0

    def on_row(self, row: object) -> None:
        self.rows += 1
        if self.rows == 30:
            self.action()


def gone(folder: Path) -> None:
    """At once: emptying it file by file would meet the thread that is writing there."""
    folder.rename(folder.with_name("away"))


def a_file_instead(folder: Path) -> None:
    gone(folder)
    folder.write_text("something else")


def another_run_instead(folder: Path) -> None:
    gone(folder)
    folder.mkdir()
    (folder / FILE).write_text("")


@pytest.mark.parametrize("what", [gone, a_file_instead, another_run_instead])
@pytest.mark.parametrize("every", [0.0, 1000.0], ids=["always", "at the end"])
def test_a_folder_that_goes_away_does_not_end_a_fit(what, every, tmp_path, caplog):
    folder = tmp_path / "run"
    with caplog.at_level(logging.WARNING, "isvi"):
        found = fit(isvi.Checkpoint(folder, every), callbacks=[Does(lambda: what(folder))])  # type: ignore[arg-type]
    assert found.status.kind == "budget"
    told = [record.getMessage() for record in caplog.records]
    assert 2 <= len(told) <= 4  # a checkpoint, and the fit; once each, not once per checkpoint
    assert all("could not write" in one for one in told)
    assert not folder.is_dir() or [path.name for path in folder.iterdir()] == [FILE]


def test_a_disk_that_is_full_at_the_start_is_refused(tmp_path, monkeypatch):
    def full(*arguments: object, **options: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("isvi.checkpoints.checkpoints.write_archive", full)
    with pytest.raises(isvi.CheckpointError, match=r"no run can be kept in .*No space left on device.*Make room"):
        fit(tmp_path / "run")
    monkeypatch.undo()
    monkeypatch.setattr("isvi.checkpoints.identity.write_atomically", full)
    with pytest.raises(isvi.CheckpointError, match=r"no run can be kept in .*No space left on device.*Make room"):
        fit(tmp_path / "other")


def test_a_folder_that_cannot_be_made_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(isvi.CheckpointError, match=r"no run can be kept in .*Not a directory"):
        fit(tmp_path / "file" / "run")


def test_what_a_killed_process_left_half_written_is_cleared_away(tmp_path):
    fit(tmp_path, callbacks=[StopAt(30)])
    half = tmp_path / "checkpoints" / ".00000007.abcdef"
    half.write_bytes(b"half a checkpoint")
    assert isvi.resume(tmp_path, regression.model(), regression.data(), progress=False).gradients == 60
    assert not half.exists()


def test_an_optimizer_whose_state_files_do_not_know(tmp_path):
    """bfloat16: it comes back bit for bit."""
    optimizer = optax.adam(0.01, mu_dtype="bfloat16")
    fit(tmp_path, optimizer=optimizer, callbacks=[StopAt(30)])
    resumed = isvi.resume(tmp_path, regression.model(), regression.data(), optimizer=optimizer, progress=False)
    whole = isvi.fit(regression.model(), regression.data(), optimizer=optimizer, **OPTIONS)
    np.testing.assert_array_equal(resumed.mean()["w"], whole.mean()["w"])


def test_notes_that_make_no_sense_are_passed_over(tmp_path, caplog):
    """Somebody edited them, and the digest too: the checkpoint before is used."""
    fit(isvi.Checkpoint(tmp_path, every=0.0), callbacks=[StopAt(30)])  # type: ignore[arg-type]
    newest = max((tmp_path / "checkpoints").iterdir())
    with Archive(newest) as archive:
        notes = archive.described("checkpoint.json")["notes"]
        leaves = [archive.array(name) for name in archive.names()]
    notes["history"] = None
    described = {"notes": notes, "digest": digest_of(leaves, notes)}
    arrays = {f"{number:04d}": leaf for number, leaf in enumerate(leaves)}
    write_archive(newest, ("checkpoint.json", described), arrays, compress=False)
    with caplog.at_level(logging.WARNING, "isvi"):
        resumed = isvi.resume(tmp_path, regression.model(), regression.data(), progress=False)
    assert resumed.gradients == 60
    assert "the history must be lists of numbers" in caplog.text
