"""Of a warp and a nested q, the one that is closer to the posterior."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from isvi.fitting.afterwards import bend as bending
from isvi.fitting.afterwards.bent import Bent

WARP, NESTED = "warp", "nested"


@pytest.mark.parametrize(
    ("warped", "nested", "kept"),
    [
        (
            (0.08, None),
            (0.16, "the sd of sigma may be off"),
            NESTED,
        ),  # six admission offices: a bad warp, without doubt
        ((0.60, None), (0.62, "the sd of sigma may be off"), WARP),
        ((0.62, "the sd of sigma may be off"), (0.60, None), NESTED),
        ((0.90, "the sd of sigma may be off"), (0.40, None), WARP),
        ((0.60, None), (0.70, None), NESTED),
    ],
)
def test_which_is_kept(monkeypatch: pytest.MonkeyPatch, warped: Any, nested: Any, kept: str) -> None:
    def came_of(what: str, effective: float, doubt: str | None) -> Bent:
        approximation: Any = what
        return Bent(what, 100, approximation, (np.zeros(2),), effective, doubt)

    monkeypatch.setattr(bending, "warp", lambda *_: came_of(WARP, *warped))
    monkeypatch.setattr(bending, "nest", lambda *_: came_of(NESTED, *nested))
    state = SimpleNamespace(params=(np.zeros(2, np.float32),))
    setup: Any = SimpleNamespace(warp=object(), nested=object())
    outcome: Any = SimpleNamespace(loop=SimpleNamespace(state=state))
    bent = bending.bend(setup, outcome, lambda: None)
    assert bent.approximation == kept
    assert bent.gradients == 200
