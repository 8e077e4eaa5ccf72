"""How much stored pairs count for the curvature, once q has moved on."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


def tempered(log_weights: Float[Array, " records"], enough: float | Array) -> Float[Array, " records"]:
    """Importance weights to the largest power, at most 1, at which their effective number is ``enough``.

    Entries of -inf (empty slots) get weight 0; the largest weight is 1.
    """
    centred = log_weights - jnp.max(log_weights)

    def effective(power: Array) -> Array:
        weights = _power(centred, power)
        return weights.sum() ** 2 / (weights**2).sum()

    def halve(_: int, bounds: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = bounds
        middle = (low + high) / 2
        return jax.lax.cond(effective(middle) >= enough, lambda: (middle, high), lambda: (low, middle))

    zero, one = jnp.zeros((), centred.dtype), jnp.ones((), centred.dtype)
    low, _ = jax.lax.fori_loop(0, 20, halve, (zero, one))
    return _power(centred, jnp.where(effective(one) >= enough, one, low))


def _power(log_weights: Array, power: Array) -> Array:
    # -inf times a power of 0 must stay an empty slot.
    empty = jnp.isneginf(log_weights)
    return jnp.where(empty, 0, jnp.exp(power * jnp.where(empty, 0, log_weights)))
