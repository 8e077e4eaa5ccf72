"""A run that is stopped and resumed equals the run that was not."""

import logging
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax
import pytest
from jax.scipy.stats import norm
from support import regression
from support.callbacks import StopAt

import isvi
from isvi.checkpoints.checkpoints import Checkpoints


@pytest.fixture(autouse=True, scope="module")
def few_rows() -> Iterator[None]:
    """Twenty rows of history: a checkpoint after each takes a moment."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("isvi.fitting.running.driver.ROWS_OF_HISTORY", 20)
        yield


def run(options: dict, **more) -> isvi.Fit:
    return isvi.fit(
        regression.model(), regression.data(), batch_size=regression.BATCH_SIZE, **{"budget": 400, **options}, **more
    )


def same_bits(first: isvi.Fit, second: isvi.Fit) -> bool:
    mine, yours = jax.tree.leaves(first.params), jax.tree.leaves(second.params)
    return (
        all(np.array_equal(a, b) for a, b in zip(mine, yours, strict=True))
        and first.history.elbo == second.history.elbo
        and first.history.gradients == second.history.gradients
        and first.history.steps == second.history.steps
        and first.status == second.status
    )


@pytest.mark.parametrize(
    ("options", "row"),
    [
        ({}, 3),
        ({"algorithm": isvi.ISGD(t=0.8), "family": isvi.FullRank()}, 7),
        ({"algorithm": isvi.ISAG(), "seed": 5}, 12),
        ({"family": {"w": isvi.StudentT(df=5.0)}}, 19),
    ],
    ids=["auto", "isgd", "isag", "student"],
)
def test_resumed_equals_uninterrupted(tmp_path, options, row):
    stopped = run(options, checkpoint=tmp_path / "run", callbacks=[StopAt(row)])
    assert stopped.status.kind == "interrupted"
    assert "StopAt" in stopped.status.message
    resumed = isvi.resume(tmp_path / "run", regression.model(), regression.data())
    assert same_bits(resumed, run(options))


def test_stopping_in_the_middle_of_a_row_changes_nothing(tmp_path, monkeypatch):
    """Checkpoints after every compiled call, all but an early one thrown away."""
    monkeypatch.setattr("isvi.fitting.running.driver.SECONDS_PER_CALL", 1e-9)  # one gradient a call
    monkeypatch.setattr("isvi.fitting.running.driver.ROWS_OF_HISTORY", 5)
    options = {"algorithm": isvi.ISGD(), "budget": 40}
    whole = run(options, checkpoint=isvi.Checkpoint(tmp_path, every=0.0, keep=1000))
    for late in sorted((tmp_path / "checkpoints").iterdir())[22:]:
        late.unlink()
    assert same_bits(isvi.resume(tmp_path, regression.model(), regression.data()), whole)


def test_the_users_optimizer_is_passed_again(tmp_path):
    options = {"algorithm": isvi.SGD(), "budget": 100}
    optimizer = optax.chain(optax.add_noise(0.01, 0.5, jax.random.key(1)), optax.adam(0.01))  # its state has a key
    run(options, optimizer=optimizer, checkpoint=tmp_path, callbacks=[StopAt(10)])
    with pytest.raises(isvi.CheckpointError, match="optimizer was the user's and is isvi's own"):
        isvi.resume(tmp_path, regression.model(), regression.data())
    resumed = isvi.resume(tmp_path, regression.model(), regression.data(), optimizer=optimizer)
    assert same_bits(resumed, run(options, optimizer=optimizer))


def test_a_finished_run_resumes_to_itself(tmp_path):
    """Also one whose options were numbers of NumPy's."""
    options = {"algorithm": isvi.SGD(), "seed": np.int64(3), "budget": np.int32(400), "initial_scale": np.float64(0.1)}
    whole = run(options, checkpoint=tmp_path)
    again = isvi.resume(tmp_path, regression.model(), regression.data())
    assert same_bits(again, whole)
    assert again.seconds == whole.seconds


def test_a_model_without_data(tmp_path):
    model = isvi.Model({"z": isvi.real(2)}, lambda z: norm.logpdf(z["z"], 3.0).sum())
    stopped = isvi.fit(model, budget=400, checkpoint=tmp_path, callbacks=[StopAt(1)])
    resumed = isvi.resume(tmp_path, model)
    assert stopped.status.kind == "interrupted"
    assert same_bits(resumed, isvi.fit(model, budget=400))


def test_only_the_latest_are_kept(tmp_path, monkeypatch):
    monkeypatch.setattr("isvi.fitting.running.driver.SECONDS_PER_CALL", 1e-9)
    run({"algorithm": isvi.SGD(), "budget": 20}, checkpoint=isvi.Checkpoint(tmp_path, every=0.0, keep=2))
    assert len(list((tmp_path / "checkpoints").iterdir())) == 2


@pytest.fixture(scope="module")
def stopped_run(tmp_path_factory) -> Path:
    """A run with three checkpoints that was stopped in the middle."""
    folder = tmp_path_factory.mktemp("stopped") / "run"
    run({"algorithm": isvi.SGD()}, checkpoint=isvi.Checkpoint(folder, every=0.0), callbacks=[StopAt(6)])
    assert len(list((folder / "checkpoints").iterdir())) == 3
    return folder


@pytest.fixture
def copied(stopped_run, tmp_path) -> Path:
    return Path(shutil.copytree(stopped_run, tmp_path / "run"))


def newest(folder: Path) -> Path:
    return max((folder / "checkpoints").iterdir(), key=lambda path: int(path.name))


def flip(path: Path) -> None:
    contents = bytearray(path.read_bytes())
    contents[len(contents) // 2] ^= 0xFF
    path.write_bytes(contents)


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


@pytest.mark.parametrize("damage", [flip, truncate, Path.unlink], ids=["flipped", "truncated", "missing"])
def test_a_damaged_checkpoint_is_passed_over(copied, damage, caplog):
    damage(newest(copied))
    with caplog.at_level(logging.WARNING, "isvi"):
        resumed = isvi.resume(copied, regression.model(), regression.data())
    assert ("cannot be used" in caplog.text) == (damage is not Path.unlink)
    assert same_bits(resumed, run({"algorithm": isvi.SGD()}))


def test_all_damaged(copied):
    for path in (copied / "checkpoints").rglob("*"):
        if path.is_file():
            path.write_bytes(b"")
    with pytest.raises(isvi.CheckpointError, match=r"no checkpoint in .* can be read"):
        isvi.resume(copied, regression.model(), regression.data())


def test_damaged_description(copied):
    (copied / "run.json").write_text("{")
    with pytest.raises(isvi.CheckpointError, match=r"run\.json is damaged"):
        isvi.resume(copied, regression.model(), regression.data())
    (copied / "run.json").write_text('{"format": 99}')
    with pytest.raises(isvi.CheckpointError, match="format 99"):
        isvi.resume(copied, regression.model(), regression.data())


def other_prior() -> isvi.Model:
    good = regression.model()
    return isvi.Model(good.latents, lambda z: norm.logpdf(z["w"], 0, 2).sum(), good.log_likelihood)


def another_row() -> dict:
    rows = regression.data()
    rows["y"][17] += 1
    return rows


@pytest.mark.parametrize(
    ("model", "data", "options", "message"),
    [
        (other_prior(), regression.data(), {}, "model: its log densities compute something else"),
        (regression.model(), another_row(), {}, "data: sum of the values"),
        (regression.model(), {k: v[:-1] for k, v in regression.data().items()}, {}, "data: rows was 130 and is 129"),
        (
            regression.model(),
            regression.data(),
            {"family": isvi.FullRank()},
            r"MeanField\(\) and is FullRank",
        ),
        (regression.model(), regression.data(), {"algorithm": isvi.ISGD()}, r"algorithm was SGD\(\) and is ISGD"),
    ],
    ids=["model", "values", "rows", "family", "algorithm"],
)
def test_another_run_is_refused(copied, model, data, options, message):
    with pytest.raises(isvi.CheckpointError, match=message):
        isvi.resume(copied, model, data, **options)


def test_a_folder_with_a_run_is_not_overwritten(copied):
    with pytest.raises(isvi.CheckpointError, match="already holds a run"):
        run({}, checkpoint=copied)


def test_a_folder_without_a_run(tmp_path):
    with pytest.raises(isvi.CheckpointError, match="holds no run"):
        isvi.resume(tmp_path, regression.model(), regression.data())


def test_a_full_disk_does_not_end_a_fit(tmp_path, monkeypatch, caplog):
    write, done = Checkpoints._write, []

    def full(*arguments: Any) -> None:
        if done:
            raise OSError(28, "No space left on device")
        done.append(write(*arguments))

    monkeypatch.setattr(Checkpoints, "_write", full)
    options = {"algorithm": isvi.SGD()}
    with caplog.at_level(logging.WARNING, "isvi"):
        fit = run(options, checkpoint=isvi.Checkpoint(tmp_path, every=0.0))
    assert "No space left on device" in caplog.text
    assert same_bits(fit, run(options))


@pytest.mark.parametrize("options", [{"every": -1.0}, {"keep": 0}])
def test_options_are_checked(options):
    with pytest.raises(isvi.ConfigurationError, match="every >= 0"):
        isvi.Checkpoint("run", **options)


def test_a_run_that_ended_before_its_first_checkpoint_starts_again(tmp_path):
    """Killed between the first checkpoint and ``run.json``, which is written last."""
    whole = run({}, checkpoint=tmp_path)
    (tmp_path / "run.json").unlink()
    with pytest.raises(isvi.CheckpointError, match="started again, by isvi"):
        isvi.resume(tmp_path, regression.model(), regression.data())
    assert same_bits(run({}, checkpoint=tmp_path), whole)
