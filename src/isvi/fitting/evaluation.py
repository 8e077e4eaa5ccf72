"""The log joint of all rows at draws of q, in float64: what ELBOs and importance weights are made of."""

import gc
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from isvi.core.errors import ConfigurationError, require
from isvi.model.binding import make_target

if TYPE_CHECKING:
    from isvi.fitting.result import Fit

log = logging.getLogger("isvi")

Float64 = Float[np.ndarray, " draws"]

VALUES_AT_ONCE = 2**22
"""Rows times draws that are evaluated together: 32 MB for each intermediate number per row."""

ROWS_TO_EVALUATE = 10**8
ENTRIES_TO_DRAW = 5 * 10**7
FEWEST_DRAWS, MOST_DRAWS, MOST_DRAWS_ON_HOST = 100, 2000, 1000


class ElboEstimate(NamedTuple):
    """An ELBO and how sure it is."""

    value: float
    standard_error: float

    def __str__(self) -> str:
        return f"{self.value:,.3f} ± {self.standard_error:.3f}"


@dataclass(frozen=True)
class Evaluation:
    """Draws from q, and how likely they are under the model and under q.

    Attributes:
        draws: ``(draws, dim)``: in the coordinates of the approximation.
        log_joint: log p(x, z) of all rows, with the Jacobians of the constraints. One pass over the data per draw.
        log_density: log q(z).
        entropy: of q, exact.
    """

    draws: Float[np.ndarray, "draws dim"]
    log_joint: Float64
    log_density: Float64
    entropy: float

    @property
    def passes(self) -> int:
        """Passes over the data that it took."""
        return len(self.draws)

    @property
    def elbo(self) -> ElboEstimate:
        """Its standard error is that of the mean log joint over the draws; the entropy has none."""
        spread = self.log_joint.std(ddof=1) / np.sqrt(self.passes)
        return ElboEstimate(float(self.log_joint.mean()) + self.entropy, float(spread))


def default_draws(fit: "Fit") -> int:
    """How many draws to evaluate if the user does not say: 2,000 for data of up to 50,000 rows, then fewer, down to
    100 from a million rows on. Each is a pass over the data. Models evaluated on the host get at most 1,000."""
    target = make_target(fit.model, fit.approximation.coordinates)
    most = MOST_DRAWS_ON_HOST if target.on_host else MOST_DRAWS
    wanted = min(ROWS_TO_EVALUATE // fit.data().size, ENTRIES_TO_DRAW // fit.approximation.dim, most)
    return max(FEWEST_DRAWS, wanted)


def evaluate(fit: "Fit", num_samples: int, seed: int) -> Evaluation:
    """Draw, and evaluate the model at the draws: ``num_samples`` passes over the data."""
    require(
        isinstance(num_samples, (int, np.integer)) and num_samples >= 2,
        ConfigurationError,
        f"num_samples must be at least 2; got {num_samples}.",
    )
    approximation = fit.approximation
    on_host = make_target(fit.model, approximation.coordinates).on_host
    at_once = max(1, VALUES_AT_ONCE // max(fit.data().batch_size, approximation.dim))
    with jax.enable_x64(True):
        params = in_float64(fit.params)
        draws = approximation.draw(jax.random.key(seed), params, int(num_samples))
        density = jax.jit(jax.vmap(lambda z: approximation.log_density(params, z).sum()))
        pieces = [draws[start : start + at_once] for start in range(0, num_samples, at_once)]

        def log_joint() -> Float64:
            target = make_target(fit.model, approximation.coordinates)  # a new one: nothing compiled before is kept
            return np.concatenate([np.asarray(target.whole_values(piece, fit.data())) for piece in pieces])

        return Evaluation(
            np.asarray(draws),
            log_joint() if on_host else in_one_precision(log_joint),
            np.concatenate([np.asarray(density(piece)) for piece in pieces]),
            float(approximation.entropy(params).sum()),
        )


def in_float64(params: Any) -> Any:
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float64), params)


def in_one_precision(compute: Callable[[], Any]) -> Any:
    """``compute()``; if it cannot be compiled, once more with JAX's caches cleared.

    A float64 NumPy array that a model closes over, once traced in single precision, is float32 to JAX for as long as
    anything compiled with it lives, and then clashes with double precision. What lives can only be cleared as a
    whole, and the error itself, whose traceback holds the array too, must be gone before.
    """
    try:
        return compute()
    except (TypeError, ValueError) as error:
        log.debug("compiling again with JAX's caches cleared, after: %s", error)
    jax.clear_caches()
    gc.collect()
    try:
        return compute()
    except (TypeError, ValueError) as error:
        error.add_note(
            "(raised when isvi evaluated the log joint in double precision. If the message is about float32 and "
            "float64: make NumPy arrays that the model closes over JAX arrays first, by jnp.asarray)"
        )
        raise
