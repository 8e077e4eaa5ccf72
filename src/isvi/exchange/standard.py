"""Where q is, for samplers: points to start at."""

from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

if TYPE_CHECKING:
    from isvi.results.fit import Fit


def starts(fit: "Fit", number: int, seed: int) -> Float[np.ndarray, "points dim"]:
    """Points to start chains at, in the coordinates of the approximation: resampled where the weights can be trusted,
    else q's own draws."""
    weighted = fit._weighted(None, seed)
    if weighted.trusted:
        return weighted.resample(number, seed)
    return np.asarray(fit._draw(number, seed, antithetic=False), np.float64)


def initial_points(fit: "Fit", number: int, seed: int) -> dict[str, np.ndarray]:
    """See :meth:`isvi.Fit.initial_points`."""
    with jax.enable_x64(True):
        return fit._latents(jnp.asarray(starts(fit, number, seed)))
