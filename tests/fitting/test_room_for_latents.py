"""A run that does not fit in memory is refused before it begins, with advice."""

import jax
import jax.numpy as jnp
import pytest

import isvi
from isvi.fitting import room

MODEL = isvi.Model({"w": isvi.real(3000)}, lambda z: jnp.sum(-0.5 * z["w"] ** 2))


def test_what_does_not_fit_is_refused_with_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "free_bytes", lambda: 100_000)
    with pytest.raises(isvi.ConfigurationError, match=r"3,000 entries .* needs about .*docs/local.md"):
        isvi.fit(MODEL, progress=False)


def test_where_nothing_is_known_nothing_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "free_bytes", lambda: None)
    assert isvi.fit(MODEL, budget=20, progress=False).gradients == 20


def test_free_memory_is_a_number_where_the_system_tells() -> None:
    found = room.free_bytes()
    assert found is None or found > 0
    room.check_room(jax.ShapeDtypeStruct((10,), jnp.float32), 10)
