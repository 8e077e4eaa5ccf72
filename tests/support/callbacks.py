"""Callbacks that tests use."""

import isvi


class StopAt(isvi.Callback):
    """Ends a fit at a row of its history."""

    def __init__(self, row: int) -> None:
        self.left = row

    def on_row(self, row: object) -> bool:
        self.left -= 1
        return self.left == 0
