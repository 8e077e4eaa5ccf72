"""The flat vector: order, labels, and the space each latent is in."""

import jax.numpy as jnp
import numpy as np
import pytest

import isvi
from isvi.core.coordinates import lay_out

LATENTS = {"w": isvi.real(2), "s": isvi.positive(via="exp"), "p": isvi.simplex(3)}


def test_latents_follow_the_given_order():
    flat = lay_out(LATENTS, ["p", "w", "s"])
    assert flat.size == 5
    assert [(entry.name, entry.start, entry.stop) for entry in flat.entries] == [("p", 0, 2), ("w", 2, 4), ("s", 4, 5)]
    assert flat.labels() == ["p[0]", "p[1]", "w[0]", "w[1]", "s"]


def test_constrained_entries_are_the_values_themselves():
    flat = lay_out(LATENTS, ["w", "s", "p"], constrained=frozenset({"s", "p"}))
    z = jnp.array([0.1, -0.2, 3.0, 0.2, 0.3, 0.5])
    values, log_determinant = flat.decode(z)
    assert float(values["s"]) == 3.0
    assert float(log_determinant) == 0.0
    np.testing.assert_array_equal(flat.encode(values), z)


def test_log_determinants_add_up():
    flat = lay_out(LATENTS, ["w", "s", "p"])
    z = jnp.array([0.1, -0.2, 0.7, 0.2, 0.3])
    parts = [entry.decode(z)[1] for entry in flat.entries]
    np.testing.assert_allclose(flat.decode(z)[1], sum(parts), rtol=1e-6)
    np.testing.assert_allclose(parts[1], 0.7, rtol=1e-6)  # d exp(z) / dz = exp(z)


def test_many_draws_are_constrained_at_once():
    flat = lay_out(LATENTS, ["w", "s", "p"])
    values = flat.constrain(jnp.zeros((7, 5)))
    assert {name: value.shape for name, value in values.items()} == {"w": (7, 2), "s": (7,), "p": (7, 3)}


@pytest.mark.parametrize("order", [["w"], ["w", "s", "p", "w"], ["w", "s", "q"]])
def test_every_latent_must_appear_once(order):
    with pytest.raises(isvi.ModelError, match=r"exactly once: expected \['p', 's', 'w'\]"):
        lay_out(LATENTS, order)
