"""Steps in the geometry of q, as optax transformations.

A natural gradient is F^{-1} g with F the Fisher information of q: the direction in which the ELBO rises fastest per nat
of change of q, whatever q's parameters are. Both transformations here need to know which approximation the parameters
belong to. ``isvi.fit`` and ``isvi.build`` tell every optimizer, by optax's way for extra arguments, so that these can
stand anywhere in an ``optax.chain``; a loop of your own calls ``update(gradient, state, params, approximation=...)``.
"""

from typing import Any

import jax.numpy as jnp
import optax

from isvi.core.errors import ConfigurationError, require
from isvi.families.approximation import Approximation
from isvi.families.base import Params


def natural_gradient(
    learning_rate: optax.ScalarOrSchedule = 0.1, max_kl: float | None = 0.1
) -> optax.GradientTransformationExtraArgs:
    """Natural-gradient steps, of a bounded length.

    Args:
        learning_rate: how much of the natural gradient is taken, or a schedule. 1 is a whole Newton step for a target
            that is as Gaussian (or as conjugate) as q.
        max_kl: no factor of q moves further than this in one step, in nats, to second order; None for no bound.
    """
    steps = [scale_by_fisher(), optax.scale_by_learning_rate(learning_rate)]
    return optax.chain(*steps, *([] if max_kl is None else [bound_kl(max_kl)]))


def scale_by_fisher() -> optax.GradientTransformationExtraArgs:
    """Turns a gradient into the natural gradient."""

    def update(
        updates: Params, state: Any, params: Params = None, *, approximation: Approximation | None = None, **_: Any
    ) -> tuple[Params, Any]:
        known = _known("scale_by_fisher", approximation, params)
        return known.natural(params, updates), state

    return optax.GradientTransformationExtraArgs(lambda params: optax.EmptyState(), update)


def bound_kl(max_kl: float = 0.1) -> optax.GradientTransformationExtraArgs:
    """Shortens a step, factor by factor, to at most this KL between before and after.

    The KL is taken to second order, d' F d / 2: where that is 0.1 nat, a univariate Gaussian's true one lies between
    0.08 and 0.14. To be the last of a chain, as in ``optax.chain(optax.adam(0.1), bound_kl(0.1))``.
    """
    require(
        max_kl > 0,
        ConfigurationError,
        f"max_kl is in nats per factor and must be positive, or None for no bound; got {max_kl!r}.",
    )

    def update(
        updates: Params, state: Any, params: Params = None, *, approximation: Approximation | None = None, **_: Any
    ) -> tuple[Params, Any]:
        known = _known("bound_kl", approximation, params)
        half = known.squared_length(params, updates) / 2
        scales = jnp.sqrt(max_kl / jnp.maximum(half, max_kl))
        return known.scale_by_factor(scales, updates), state

    return optax.GradientTransformationExtraArgs(lambda params: optax.EmptyState(), update)


def _known(name: str, approximation: Approximation | None, params: Params) -> Approximation:
    if approximation is None or params is None:
        raise ConfigurationError(
            f"{name} needs the parameters and the approximation they belong to. isvi.fit and isvi.build pass them on; "
            "in a loop of your own call update(gradient, state, params, approximation=approximation)."
        )
    return approximation
