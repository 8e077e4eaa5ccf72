"""Ctrl-C once stops in good order; twice stops at once."""

import os
import signal
import threading

import pytest
from support import regression

import isvi


class Signals(isvi.Callback):
    """Sends signals to this process at a row."""

    def __init__(self, number: signal.Signals, times: int = 1, row: int = 20) -> None:
        self.number, self.times, self.row = number, times, row

    def on_row(self, row):
        self.row -= 1
        if self.row == 0:
            for _ in range(self.times):
                os.kill(os.getpid(), self.number)


def run(callback: isvi.Callback, **options) -> isvi.Fit:
    return isvi.fit(
        regression.model(), regression.data(), algorithm=isvi.SGD(), budget=400, callbacks=[callback], **options
    )


@pytest.mark.parametrize(("number", "words"), [(signal.SIGINT, "by hand"), (signal.SIGTERM, "SIGTERM")])
def test_once_returns_what_there_is(number, words):
    before = signal.getsignal(number)
    fit = run(Signals(number))
    assert fit.status.kind == "interrupted"
    assert words in fit.status.message
    assert 80 <= fit.gradients < 400
    assert signal.getsignal(number) is before


def test_what_there_is_was_saved(tmp_path):
    stopped = run(Signals(signal.SIGINT), checkpoint=tmp_path)
    assert isvi.load(tmp_path).gradients == stopped.gradients
    resumed = isvi.resume(tmp_path, regression.model(), regression.data())
    assert resumed.gradients == 400


def test_twice_stops_at_once():
    with pytest.raises(KeyboardInterrupt):
        run(Signals(signal.SIGINT, times=2))
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_in_another_thread_signals_are_left_alone():
    found = []
    thread = threading.Thread(target=lambda: found.append(run(isvi.Callback())))
    thread.start()
    thread.join()
    assert found[0].gradients == 400
