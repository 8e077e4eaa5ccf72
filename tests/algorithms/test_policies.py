"""When a record is made: the policies, and I-SGD's safety rule."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from support.regression import run

import isvi
from isvi.estimators.weights import WeightHealth

STILL = optax.sgd(0.0)
"""Parameters do not move, so weights stay at 1 and only the policy decides."""


def health(effective=1.0, divergence=0.0, largest=1.0) -> WeightHealth:
    return WeightHealth(jnp.asarray(effective), jnp.asarray(divergence), jnp.asarray(largest))


def test_random_reuses_with_probability_t():
    """4,000 independent steps with t = 0.9: the share of fresh ones is 0.1 within 5 standard errors,
    5 * sqrt(0.09 / 4000) = 0.024. A correct policy fails with probability 6e-7."""
    _, infos = run(isvi.ISGD(t=0.9), STILL, steps=1000, seeds=4)
    fresh = np.asarray(infos.fresh)
    assert fresh[:, 0].all()
    assert abs(fresh.mean() - 0.1) < 0.024


def test_t_zero_never_reuses():
    _, infos = run(isvi.ISGD(t=0.0), STILL, steps=50)
    assert np.asarray(infos.fresh).all()


def test_fixed_steps_are_exact():
    _, infos = run(isvi.ISGD(policy=isvi.FixedSteps(4)), STILL, steps=40)
    np.testing.assert_array_equal(np.asarray(infos.fresh)[0], np.arange(40) % 4 == 0)


def test_adaptive_stops_at_max_steps_when_all_is_well():
    _, infos = run(isvi.ISGD(policy=isvi.Adaptive(max_steps=7)), STILL, steps=35)
    np.testing.assert_array_equal(np.asarray(infos.fresh)[0], np.arange(35) % 7 == 0)


@pytest.mark.parametrize(
    ("bad", "wanted"),
    [
        (health(), False),
        (health(effective=0.79), True),
        (health(effective=0.81), False),
        (health(divergence=0.06), True),
        (health(divergence=0.04), False),
    ],
)
def test_adaptive_stops_on_bad_health(bad, wanted):
    policy = isvi.Adaptive(min_effective=0.8, max_divergence=0.05, max_steps=20)
    assert bool(policy.wants_record(jax.random.key(0), jnp.int32(3), bad)) is wanted


def test_adaptive_reuses_less_when_steps_are_larger():
    small, large = (
        np.asarray(run(isvi.ISGD(policy=isvi.Adaptive(max_steps=1000)), optax.adam(rate), steps=300)[1].fresh).mean()
        for rate in (1e-4, 3e-2)
    )
    assert small < large / 3


def test_safe_weight_makes_a_new_record():
    """A policy that never asks for one, and steps that raise the weights of some of 20 draws."""

    def fresh_steps(safe_weight: float) -> int:
        algorithm = isvi.ISGD(policy=isvi.FixedSteps(10_000), safe_weight=safe_weight)
        _, infos = run(algorithm, optax.adam(0.05), 60, isvi.Reparameterization(num_samples=20))
        return int(np.asarray(infos.fresh).sum())

    loose, tight = fresh_steps(1e30), fresh_steps(1.5)
    assert loose == 1
    assert tight > 5
