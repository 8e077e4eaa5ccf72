"""Ctrl-C once stops in good order; twice stops at once."""

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import jax
import numpy as np
import pytest
from jax.scipy.stats import norm
from support import interrupted_fit
from threadpoolctl import threadpool_info, threadpool_limits

import isvi
from isvi.fitting.running.interruption import Interruption
from isvi.fitting.running.threads import one_blas_thread


def interrupted(number: signal.Signals, times: int, folder: Path) -> dict:
    """In a process of its own: a signal goes to the whole process, and the one that runs the tests has others to do."""
    ran = started(number, times, folder, "return")
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


def started(number: signal.Signals, times: int, folder: Path, sigterm: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, interrupted_fit.__file__, str(int(number)), str(times), str(folder), sigterm]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(("number", "words"), [(signal.SIGINT, "by hand"), (signal.SIGTERM, "SIGTERM")])
def test_once_returns_what_there_is_and_saves_it(number, words, tmp_path):
    ended = interrupted(number, 1, tmp_path)
    assert ended["kind"] == "interrupted"
    assert words in ended["message"]
    assert 80 <= ended["gradients"] < 400
    assert ended["restored"]
    assert isvi.load(tmp_path).gradients == ended["gradients"]
    assert isvi.resume(tmp_path, interrupted_fit.model(), interrupted_fit.data()).gradients == 400


def test_sigterm_saves_and_then_ends_the_process(tmp_path):
    """As it would have without isvi: a script does not go on with its next fit."""
    ran = started(signal.SIGTERM, 1, tmp_path, "end")
    assert ran.returncode == -signal.SIGTERM
    assert ran.stdout == ""
    assert 80 <= isvi.load(tmp_path).gradients < 400
    assert isvi.resume(tmp_path, interrupted_fit.model(), interrupted_fit.data()).gradients == 400


def test_sigterm_is_left_alone_where_nothing_can_be_saved(usual_handler):
    before = signal.getsignal(signal.SIGTERM)
    with Interruption(sigterm=False):
        assert signal.getsignal(signal.SIGTERM) is before


def test_twice_stops_at_once(tmp_path):
    ended = interrupted(signal.SIGINT, 2, tmp_path)
    assert ended["raised"]
    assert ended["restored"]


@pytest.fixture
def usual_handler() -> Iterator[None]:
    """The one that is replaced during a fit: where the tests run in the background of a script, SIGINT is ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("call", [2, 60], ids=["while the start is tried", "while it runs"])
def test_ctrl_c_inside_a_callback_of_jax_is_not_swallowed(call, usual_handler):
    """JAX makes an error of its own of it, which ``except Exception`` would catch."""
    calls = []

    def on_host(w: np.ndarray) -> np.ndarray:
        calls.append(w)
        if len(calls) == call:
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)
        return np.float32(0)

    def log_prior(z):
        shape = jax.ShapeDtypeStruct((), np.float32)
        fixed = jax.lax.stop_gradient(z["w"])
        return norm.logpdf(z["w"]) + jax.pure_callback(on_host, shape, fixed, vmap_method="sequential")

    with pytest.raises(KeyboardInterrupt):
        isvi.fit(isvi.Model({"w": isvi.real()}, log_prior), algorithm=isvi.SGD(), budget=100, progress=False)
    assert len(calls) == call


def blas_threads() -> list[int]:
    return [found["num_threads"] for found in threadpool_info() if found["user_api"] == "blas"]


def test_blas_has_its_threads_back_after_fits_in_two_threads():
    """One begins before the other has ended, and ends before it."""
    with threadpool_limits(2, "blas"):
        before = blas_threads()
        one, other = one_blas_thread(), one_blas_thread()
        for step in (one.__enter__, other.__enter__):
            step()
            assert set(blas_threads()) == {1}
        one.__exit__(None, None, None)
        assert set(blas_threads()) == {1}
        other.__exit__(None, None, None)
        assert blas_threads() == before


def test_signals_are_noted_while_it_is_entered(usual_handler):
    with Interruption() as interruption:
        signal.raise_signal(signal.SIGINT)
        assert interruption.reason == "stopped by hand"
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_ignored_signal_stays_ignored(usual_handler):
    """As in the background of a script, where Ctrl-C is meant for someone else."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with Interruption() as interruption:
        signal.raise_signal(signal.SIGINT)
    assert interruption.reason is None


def test_in_another_thread_signals_are_left_alone(usual_handler):
    found = []

    def enter() -> None:
        with Interruption():
            found.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert found == [signal.default_int_handler]
