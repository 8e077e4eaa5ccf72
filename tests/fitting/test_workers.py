"""Records made by workers: the fit is the one of a single process, bit for bit, whoever makes them and whoever dies."""

import multiprocessing
import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from threading import Condition, Event, get_ident
from typing import Any

import jax
import numpy as np
import pytest
from support import sent
from support.files import write_npy

import isvi
from isvi.core.errors import ConfigurationError, WorkerError
from isvi.workers.answers import WorkerTraceback

NEEDS_RAY = pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed: pip install 'isvi[ray]'")


def threads(number: int) -> isvi.Pool:
    return isvi.Pool(lambda: ThreadPoolExecutor(number))


def processes(number: int) -> isvi.Pool:
    return isvi.Pool(lambda: ProcessPoolExecutor(number, mp_context=multiprocessing.get_context("spawn")))


def same(one: isvi.Fit, other: isvi.Fit) -> None:
    for mine, yours in zip(jax.tree.leaves(one.params), jax.tree.leaves(other.params), strict=True):
        np.testing.assert_array_equal(mine, yours)
    assert one.history.elbo == other.history.elbo
    assert (one.status, one.gradients, one.steps) == (other.status, other.gradients, other.steps)


@pytest.fixture(scope="module")
def alone() -> isvi.Fit:
    """A model on the host, fitted by one process."""
    return isvi.fit(sent.on_host(), sent.data(), **sent.OPTIONS)


WORKERS = [
    pytest.param(lambda: threads(1), id="one thread"),
    pytest.param(lambda: threads(5), id="five threads"),
    pytest.param(lambda: processes(2), id="two processes"),
    pytest.param(lambda: 2, id="ray", marks=NEEDS_RAY),
]


@pytest.mark.parametrize("workers", WORKERS)
def test_a_model_on_the_host_gives_the_bits_of_one_process(workers: Callable, alone: isvi.Fit) -> None:
    same(isvi.fit(sent.on_host(), sent.data(), workers=workers(), **sent.OPTIONS), alone)


@pytest.mark.slow
def test_a_model_in_jax_gives_the_same_bits_whoever_makes_the_records() -> None:
    fits = [isvi.fit(sent.in_jax(), sent.data(), workers=one, **sent.OPTIONS) for one in (threads(1), processes(2))]
    same(*fits)
    alone = isvi.fit(sent.in_jax(), sent.data(), **sent.OPTIONS)
    # Compiled in one piece or in two: rounding of float32, over 200 records.
    np.testing.assert_allclose(fits[0].mean()["w"], alone.mean()["w"], rtol=1e-4)
    assert fits[0].gradients == alone.gradients


@NEEDS_RAY
def test_a_model_in_jax_on_ray_too() -> None:
    def fitted(workers: Any) -> isvi.Fit:
        return isvi.fit(sent.in_jax(), sent.data(), workers=workers, **sent.OPTIONS)

    same(fitted(threads(1)), fitted(isvi.Ray(num_workers=2)))


@NEEDS_RAY
def test_workers_read_their_parts_of_the_data(tmp_path: Path) -> None:
    def fitted(workers: Any, notes: Path) -> isvi.Fit:
        notes.mkdir()
        return isvi.fit(sent.on_host(), sent.Reading(notes), workers=workers, **sent.OPTIONS)

    notes = tmp_path / "notes"
    fit = fitted(isvi.Ray(num_workers=2, parts=True), notes)
    same(fit, fitted(threads(2), tmp_path / "others"))
    readers = {note.name.split(" by ")[1] for note in notes.iterdir()} - {str(os.getpid())}
    assert len(readers) == 2


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"algorithm": isvi.ISGD(t=0.8)}, id="I-SGD"),
        pytest.param({"estimator": isvi.ScoreFunction(num_samples=4)}, id="score function"),
        pytest.param({"batch_size": 2_000, "starts": 3}, id="one mini-batch, several starts"),
    ],
)
def test_other_methods_too(options: dict[str, Any]) -> None:
    chosen = sent.OPTIONS | options
    same(
        isvi.fit(sent.on_host(), sent.data(), workers=threads(3), **chosen),
        isvi.fit(sent.on_host(), sent.data(), **chosen),
    )


def test_records_are_made_at_the_same_time() -> None:
    """Eight records of two draws lie between two steps of the memory: sixteen evaluations at once, which wait for each
    other; those of the approach, of which there are never so many, for a moment in vain."""
    changed, running, most = Condition(), 0, 0

    def together(z: dict, rows: dict) -> tuple[float, dict]:
        nonlocal running, most
        with changed:
            running += 1
            most = max(most, running)
            changed.notify_all()
            changed.wait_for(lambda: most >= 16, timeout=0.05)
            running -= 1
        return sent.value_and_grad(z, rows)

    isvi.fit(sent.on_host(together), sent.data(), workers=threads(16), **sent.OPTIONS)
    assert most == 16


class Unequal:
    """The gradient; but the first thread to ask waits until the others have asked ten times more, or, as in the
    approach, nobody else does for a moment."""

    def __init__(self) -> None:
        self.asked, self.driver, self.changed = 0, get_ident(), Condition()
        self.slow: int | None = None

    def __call__(self, z: dict, rows: dict) -> tuple[float, dict]:
        with self.changed:
            self.asked, before = self.asked + 1, self.asked
            self.changed.notify_all()
            if get_ident() != self.driver:
                self.slow = self.slow or get_ident()
                if get_ident() == self.slow:
                    self.changed.wait_for(lambda: self.asked > before + 10, timeout=0.02)
        return sent.value_and_grad(z, rows)


def test_workers_that_do_not_wait_come_to_the_same_posterior() -> None:
    """Which differs from run to run. ``converged`` says that no mean is off by more than 0.1 sd and no sd by more than
    10%; in 8 runs the largest were 0.004 sd and 2.7%, so that it fails by chance in less than one of a million runs."""
    rows = sent.data()
    precision = rows["x"].T @ rows["x"] + np.eye(sent.DIM)
    mean, sd = np.linalg.solve(precision, rows["x"].T @ rows["y"]), np.diag(np.linalg.inv(precision)) ** 0.5
    workers = isvi.Pool(lambda: ThreadPoolExecutor(4), asynchronous=True)
    fit = isvi.fit(sent.on_host(Unequal()), rows, workers=workers, **sent.OPTIONS | {"budget": 4_000})
    assert fit.status.kind == "converged"
    np.testing.assert_array_less(np.abs(fit.mean()["w"] - mean), 0.1 * sd)
    np.testing.assert_allclose(fit.sd()["w"], sd, rtol=0.1)


@pytest.mark.parametrize(
    "workers",
    [pytest.param(lambda: processes(2), id="processes"), pytest.param(lambda: 2, id="ray", marks=NEEDS_RAY)],
)
def test_a_worker_that_is_killed_changes_nothing(workers: Callable, tmp_path: Path, alone: isvi.Fit) -> None:
    file = tmp_path / "kill"
    file.touch()
    fit = isvi.fit(sent.on_host(sent.Killer(file)), sent.data(), workers=workers(), **sent.OPTIONS)
    assert not file.exists()  # it was
    same(fit, alone)


def test_an_error_on_a_worker_is_the_models_error() -> None:
    with pytest.raises(ZeroDivisionError, match="no answer") as raised:
        isvi.fit(sent.on_host(sent.Broken()), sent.data(), workers=processes(2), **sent.OPTIONS)
    assert isinstance(raised.value.__cause__, WorkerTraceback)
    assert "in __call__" in str(raised.value.__cause__)
    assert raised.value.fit.status.kind == "interrupted"
    assert "for step 0 of a fit" in raised.value.__notes__[0]


def test_what_there_is_is_kept_when_workers_do_not_answer() -> None:
    driver, over = get_ident(), Event()

    def silent(z: dict, rows: dict) -> tuple[float, dict]:
        if get_ident() != driver:
            over.wait()
        return sent.value_and_grad(z, rows)

    slow = isvi.Pool(lambda: ThreadPoolExecutor(2), time_limit=0.01)
    try:
        with pytest.raises(WorkerError, match="No worker answered") as raised:
            isvi.fit(sent.on_host(silent), sent.data(), workers=slow, **sent.OPTIONS)
    finally:
        over.set()
    assert "the workers raised WorkerError" in raised.value.fit.status.message  # type: ignore[attr-defined]


def test_a_run_with_workers_can_be_resumed_with_others(tmp_path: Path, alone: isvi.Fit) -> None:
    class Half(isvi.Callback):
        def on_row(self, row: Any) -> bool:
            return row.gradients >= 200

    isvi.fit(sent.on_host(), sent.data(), workers=threads(3), checkpoint=tmp_path, callbacks=[Half()], **sent.OPTIONS)
    resumed = isvi.resume(tmp_path, sent.on_host(), sent.data(), workers=threads(8), progress=False)
    assert resumed.gradients > 200
    same(resumed, alone)


def test_a_fit_is_evaluated_with_workers_as_without(alone: isvi.Fit) -> None:
    by: set[int] = set()

    def noted(z: dict, rows: dict) -> tuple[float, dict]:
        by.add(get_ident())
        return sent.value_and_grad(z, rows)

    model: Any = alone.model
    fit = replace(alone, model=replace(model, external=replace(model.external, function=noted)))
    with isvi.with_workers(fit, threads(3)) as helped:
        found = helped.elbo(num_samples=20)
    assert get_ident() not in by
    assert found == alone.elbo(num_samples=20)


def test_a_model_in_jax_needs_no_help(alone: isvi.Fit) -> None:
    with (
        pytest.raises(ConfigurationError, match="models on the host"),
        isvi.with_workers(replace(alone, model=sent.in_jax()), 2),
    ):
        pass


@pytest.mark.parametrize(
    "model",
    [pytest.param(sent.in_jax, id="in JAX"), pytest.param(sent.on_host, id="on the host", marks=pytest.mark.slow)],
)
def test_workers_open_the_data_themselves(model: Callable, tmp_path: Path) -> None:
    """Of several windows the driver reads the one that it checks the model on, and no other."""

    def fitted(workers: Any) -> isvi.Fit:
        source = isvi.data.Npy(write_npy(tmp_path, sent.data()), window_bytes=8_000)
        return isvi.fit(model(), source, workers=workers, **sent.OPTIONS)

    one, two = fitted(processes(1)), fitted(processes(2))
    same(one, two)
    assert one.dataset.num_windows == 4
    assert set(one.dataset.seen) == {"window-0"}
    # Compiled in one piece or in two: rounding of float32, over 200 records.
    np.testing.assert_allclose(one.mean()["w"], fitted(None).mean()["w"], rtol=1e-4)
