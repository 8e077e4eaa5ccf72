"""The trust region, told what ELBOs records had."""

import jax.numpy as jnp
import numpy as np
import pytest

from isvi.auto.trust import CRASH, LONGEST_STEP, SUDDEN_FALL, Trust

DIM = 10
BATCH = jnp.int32(0)


def after(elbos, ended=(), num_batches=1):
    """At parameters 1, where ELBOs were about -50, and then at 2, with the given ones."""
    trust = Trust.start(jnp.zeros(()), num_batches, jnp.float32)
    for noise in np.random.default_rng(0).normal(size=20):
        trust = trust.approached(jnp.ones(()), jnp.float32(-50 + noise))
    for number, elbo in enumerate(elbos):
        trust = trust.observe(BATCH, jnp.float32(elbo), DIM)
        trust = trust.judge(jnp.full((), 2.0), DIM, jnp.array(number in ended))
        if trust.broken:
            return trust, number
    return trust, None


def test_wild_and_low_is_a_crash():
    """Their mean is not surely low: its standard error is as large as itself."""
    trust, when = after([-1e3, -1e9, -1e5, -1e7])
    assert when == CRASH - 1
    assert trust.best == 1
    assert trust.radius == pytest.approx(LONGEST_STEP / 4)


def test_single_low_records_are_not():
    low = -60 - SUDDEN_FALL * DIM
    _, when = after([low, low, -50, low, low, -50] * 4)
    assert when is None


def test_a_pass_that_is_mostly_lower_is_taken_back():
    _, when = after([-60.0] * 20, ended=[19])
    assert when == 19


def test_a_pass_that_is_not_becomes_the_best():
    """Noise of one nat, which is what ten dimensions make of a slow fall."""
    trust, when = after(-50 + np.random.default_rng(1).normal(size=20), ended=[19])
    assert when is None
    assert trust.best == 2


def test_with_several_mini_batches_single_ones_say_nothing():
    _, when = after([-1e4, -1e5, -1e4, -1e5], num_batches=2)
    assert when is None


def test_with_several_mini_batches_an_exponential_that_ran_away_is_a_crash():
    """Already in the first pass, in which no mini-batch has been seen before; and squares of these are infinite."""
    trust = Trust.start(jnp.zeros(()), 5, jnp.float32).approached(jnp.ones(()), jnp.float32(-2e4))
    for batch in range(CRASH):
        assert not trust.broken
        trust = trust.observe(jnp.int32(batch), jnp.float32(-3e24), DIM)
        trust = trust.judge(jnp.full((), 2.0), DIM, jnp.array(False))
    assert trust.broken
    assert trust.best == 1


def test_precisions_change_less_with_few_pairs_or_in_a_small_region():
    trust = Trust.start(jnp.zeros(()), 1, jnp.float32)
    assert trust.limit(3.0, jnp.float32(5.0)) == pytest.approx(3.0)
    assert trust.limit(3.0, jnp.float32(0.2)) == pytest.approx(3.0**0.1)
    assert trust._replace(radius=jnp.float32(0.1)).limit(3.0, jnp.float32(5.0)) == pytest.approx(3.0**0.1)
