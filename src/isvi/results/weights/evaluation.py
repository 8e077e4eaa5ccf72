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
from isvi.model.local import evaluations_per_row
from isvi.model.target import Target

if TYPE_CHECKING:
    from isvi.results.fit import Fit

log = logging.getLogger("isvi")

Float64 = Float[np.ndarray, " draws"]

VALUES_AT_ONCE = 2**22
"""Rows times draws that are evaluated together: 32 MB for each intermediate number per row."""

ROWS_TO_EVALUATE = 10**8
ENTRIES_TO_DRAW = 5 * 10**7
FEWEST_DRAWS, MOST_DRAWS, MOST_DRAWS_ON_HOST = 100, 2000, 1000
FEWEST_WITH_INTEGRALS = 300
"""Where a pass over the data costs many evaluations of each row, so that there would be too few draws for a verdict."""


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
    per_row = evaluations_per_row(fit.model)
    wanted = min(ROWS_TO_EVALUATE // (fit.data().size * per_row), ENTRIES_TO_DRAW // fit.approximation.dim, most)
    return max(FEWEST_DRAWS if per_row == 1 else FEWEST_WITH_INTEGRALS, wanted)


def evaluate(fit: "Fit", num_samples: int, seed: int) -> Evaluation:
    """Draw, and evaluate the model at the draws: ``num_samples`` passes over the data."""
    return Evaluator(fit).evaluate(num_samples, seed)


class Evaluator:
    """Draws from q, and the densities of model and q at any draws, all in float64."""

    def __init__(self, fit: "Fit", at_once: int | None = None) -> None:
        """``at_once`` draws are evaluated together, or fewer, for data that need more memory."""
        approximation, data = fit.approximation, fit.data()
        values = data.batch_size * evaluations_per_row(fit.model)
        bearable = max(1, VALUES_AT_ONCE // max(values, approximation.numbers_per_draw))
        self._at_once = bearable if at_once is None else min(at_once, bearable)
        self._fit = fit
        self._compiled: Target | None = None
        with jax.enable_x64(True):
            self._params = params = in_float64(fit.params)
            self._density = jax.jit(jax.vmap(lambda z: approximation.log_density(params, z).sum()))

    def draw(self, num_samples: int, seed: int) -> Float[np.ndarray, "draws dim"]:
        with jax.enable_x64(True):
            return np.asarray(self._fit.approximation.draw(jax.random.key(seed), self._params, num_samples))

    def evaluate(self, num_samples: int, seed: int) -> Evaluation:
        """Draws from q, evaluated."""
        require(
            isinstance(num_samples, (int, np.integer)) and num_samples >= 2,
            ConfigurationError,
            f"num_samples must be at least 2; got {num_samples}.",
        )
        draws = self.draw(int(num_samples), seed)
        with jax.enable_x64(True):
            entropy = float(self._fit.approximation.entropy(self._params).sum())
        return Evaluation(draws, self.log_joint(draws), self.log_density(draws), entropy)

    def log_density(self, draws: Float[np.ndarray, "draws dim"]) -> Float64:
        """log q(z)."""
        with jax.enable_x64(True):
            return self._in_pieces(draws, self._density, True)

    def log_joint(self, draws: Float[np.ndarray, "draws dim"]) -> Float64:
        """log p(x, z) of all rows: a pass over the data for each draw."""
        fit = self._fit
        on_host = make_target(fit.model, fit.approximation.coordinates).on_host

        def compute() -> Float64:
            # A new one, unless it is known to compile in this precision: nothing compiled before is kept.
            target = self._compiled or make_target(fit.model, fit.approximation.coordinates)
            with jax.enable_x64(True):
                values = self._in_pieces(draws, lambda piece: target.whole_values(piece, fit.data()), not on_host)
            self._compiled = target
            return values

        return compute() if on_host else in_one_precision(compute)

    def _in_pieces(self, draws: np.ndarray, function: Callable[[jax.Array], Any], padded: bool) -> Float64:
        """``function`` of all draws, some at once. The last few may be repeated to fill a piece, so that one program is
        compiled for all of them."""
        values = []
        for start in range(0, len(draws), self._at_once):
            piece = draws[start : start + self._at_once]
            missing = self._at_once - len(piece) if padded and len(draws) > self._at_once else 0
            filled = np.concatenate([piece, np.repeat(piece[-1:], missing, axis=0)])
            values.append(np.asarray(function(jnp.asarray(filled)))[: len(piece)])
        return np.concatenate(values)


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
