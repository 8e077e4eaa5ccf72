"""A fit that sends itself signals, in a process of its own: ``python interrupted_fit.py SIGNAL TIMES FOLDER SIGTERM``.

``SIGTERM`` says what follows that signal: ``end`` or ``return``. Prints, as JSON, how it ended, and whether the
signals' handlers are those from before.
"""

import json
import os
import signal
import sys
import time
from typing import Literal

import numpy as np
from jax.scipy.stats import norm

import isvi


class Signals(isvi.Callback):
    """Sends signals to this process at its twentieth row."""

    def __init__(self, number: int, times: int) -> None:
        self.number, self.times, self.row = number, times, 20

    def on_row(self, row: object) -> None:
        self.row -= 1
        if self.row == 0:
            for _ in range(self.times):
                self._send()

    def _send(self) -> None:
        """Send one, and wait until it was taken in: two that come at once may arrive as one."""
        before = signal.getsignal(self.number)
        os.kill(os.getpid(), self.number)
        while signal.getsignal(self.number) is before:
            time.sleep(0.001)


def model() -> isvi.Model:
    return isvi.Model(
        {"w": isvi.real()}, lambda z: norm.logpdf(z["w"]), lambda z, rows: norm.logpdf(rows["y"], z["w"]).sum()
    )


def data() -> dict[str, np.ndarray]:
    return {"y": np.random.default_rng(0).normal(size=50)}


def as_in_a_terminal() -> None:
    """Who starts the tests in the background of a script (``make test &``) has them, and this, ignore SIGINT."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def main(number: int, times: int, folder: str, sigterm: Literal["end", "return"]) -> dict[str, object]:
    where = isvi.Checkpoint(folder, sigterm=sigterm)
    try:
        fit = isvi.fit(
            model(), data(), algorithm=isvi.SGD(), budget=400, callbacks=[Signals(number, times)], checkpoint=where
        )
    except KeyboardInterrupt:
        return {"raised": True}
    return {"raised": False, "kind": fit.status.kind, "message": fit.status.message, "gradients": fit.gradients}


if __name__ == "__main__":
    as_in_a_terminal()
    ended = main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4])  # type: ignore[arg-type]
    restored = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    print(json.dumps({**ended, "restored": restored and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL}))
