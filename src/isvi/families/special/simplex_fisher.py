"""The Fisher information of a Dirichlet in the parameters used here: logits of the mean, and the total's logarithm.

In y = log alpha it is ``diag(alpha_k^2 trigamma(alpha_k)) - trigamma(A) alpha alpha'``. For large alpha almost all of
the first matrix cancels against the second. So it is written with what trigamma has beyond 1/x, which is known
without a cancellation (``concentration_information``).
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from isvi.families.special.series import concentration_information


def trigamma_shortfall(x: Float[Array, "..."]) -> Float[Array, "..."]:
    """x - 1 / trigamma(x). Tends to 1/2 for large x."""
    excess = concentration_information(x)
    return excess / (1 + excess / x)


def simplex_natural(
    alpha: Float[Array, "... size"], by_logits: Float[Array, "... size"], by_log_total: Float[Array, "..."]
) -> tuple[Float[Array, "... size"], Float[Array, "..."]]:
    """F^{-1} g by the Sherman-Morrison formula. Adding a number to all logits changes nothing, so the gradient's
    entries by logits sum to zero; of the directions that are as good as each other the one is returned whose mean,
    weighted with the Dirichlet's mean, is zero."""
    total = alpha.sum(axis=-1)
    mean = alpha / total[..., None]
    shortfall = trigamma_shortfall(alpha)
    by_log_alpha = by_logits + mean * by_log_total[..., None]
    relative = shortfall / alpha  # 1 / (alpha trigamma(alpha)) = 1 - relative
    common = by_log_total - jnp.sum(relative * by_log_alpha, axis=-1)
    common = common / (shortfall.sum(axis=-1) - trigamma_shortfall(total))
    own = (1 - relative) * by_log_alpha / alpha
    log_total = jnp.sum(mean * own, axis=-1) + common * (1 - shortfall.sum(axis=-1) / total)
    own = own - common[..., None] * relative
    return own - jnp.sum(mean * own, axis=-1, keepdims=True), log_total


def simplex_squared_length(
    alpha: Float[Array, "... size"], logits: Float[Array, "... size"], log_total: Float[Array, "..."]
) -> Float[Array, "..."]:
    """d' F d of a step."""
    total = alpha.sum(axis=-1, keepdims=True)
    centred = logits - jnp.sum(alpha / total * logits, axis=-1, keepdims=True)
    log_alpha = centred + log_total[..., None]
    entries = alpha * centred**2 + concentration_information(alpha) * log_alpha**2
    return entries.sum(axis=-1) - concentration_information(total[..., 0]) * log_total**2
