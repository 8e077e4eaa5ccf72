"""The score-function estimator: needs the model's log joint only, not its gradient."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array

from isvi.core.errors import ConfigurationError, require
from isvi.data.dataset import Batch
from isvi.estimators.base import EstimatorOptions
from isvi.estimators.weights import Weighting, WeightMode
from isvi.families.base import Params
from isvi.memory.record import Record
from isvi.model.target import Target


@dataclass(frozen=True)
class ScoreFunction(EstimatorOptions):
    """Gradient of the ELBO from values of the log joint::

        mean_m w_ms (log p(x, z_m) - log q(z_m; l)) d log q_s(z_ms; l)/dl

    with today's l in both terms. It works for models that cannot be differentiated, and is far noisier than
    the reparameterization estimator where both apply.

    Attributes:
        num_samples: draws per record; this estimator needs many.
        entropy: ``"weighted"`` keeps log q inside the average, as above, which cancels much of log p's
            variation near the optimum; ``"exact"`` takes the entropy's gradient in closed form.
        control_variate: subtract from each draw's value the weighted mean value of the record's other draws.
            Leaving the draw itself out, and its mirror image if it has one, keeps the estimate unbiased.
        rao_blackwell: for each factor, leave the other factors' log q out of the value; they are independent
            of it and only add noise.
    """

    num_samples: int = 100
    entropy: Literal["exact", "weighted"] = "weighted"
    control_variate: bool = True
    rao_blackwell: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            self.entropy in ("exact", "weighted"),
            ConfigurationError,
            f"entropy must be 'exact' or 'weighted' for the score function; got {self.entropy!r}.",
        )
        require(
            not self.control_variate or self.num_samples >= 2,
            ConfigurationError,
            f"control_variate=True needs at least 2 samples; got num_samples={self.num_samples}. Set "
            "control_variate=False or raise num_samples.",
        )

    def _weight_mode(self) -> WeightMode:
        # The paper's weights for this estimator are the ratio of densities: exact already.
        return "exact" if self.weights == "paper" else self.weights

    def _evaluate(self, target: Target, draws: Array, batch: Batch) -> tuple[Array, Array]:
        return target.values(draws, batch), jnp.zeros((draws.shape[0], 0), draws.dtype)

    def _gradient(self, weighting: Weighting) -> Callable[[Params, Record], Params]:
        approximation = weighting.approximation
        log_densities = jax.vmap(jax.vmap(approximation.log_density, (None, 0)), (None, 0))

        def gradient(params: Params, records: Record) -> Params:
            coefficients = weighting.coefficients(params, records)
            values = self._values(records.log_joint, log_densities(params, records.draws))
            values = coefficients * values
            if self.control_variate:
                total = self._of_others(coefficients)
                values = values - coefficients * self._of_others(values) / jnp.where(total > 0, total, 1)

            def surrogate(params: Params) -> Array:
                score_part = jnp.sum(values * log_densities(params, records.draws))
                entropy = approximation.entropy(params) if self.entropy == "exact" else jnp.zeros(())
                return score_part + jnp.sum(entropy)

            return jax.grad(surrogate)(params)

        return gradient

    def _of_others(self, drawwise: Array) -> Array:
        """For each draw, the sum over the record's draws that are independent of it."""
        dependent = drawwise
        if self.antithetic:
            dependent = drawwise + jnp.roll(drawwise, self.num_samples // 2, axis=1)
        return drawwise.sum(axis=1, keepdims=True) - dependent

    def _values(self, log_joint: Array, log_density: Array) -> Array:
        """What multiplies each factor's score, ``(records, draws, factors)``."""
        value = jnp.broadcast_to(log_joint[..., None], log_density.shape)
        if self.entropy == "exact":
            return value
        if self.rao_blackwell:
            return value - log_density
        return value - log_density.sum(axis=-1, keepdims=True)
