"""The reparameterization estimator: the model's gradient, carried back along the path of the draws."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array

from isvi.core.errors import ConfigurationError, require
from isvi.data.dataset import Batch
from isvi.estimators.base import EstimatorOptions
from isvi.estimators.weights import Weighting
from isvi.families.base import Params
from isvi.memory.record import Record
from isvi.model.target import Target


@dataclass(frozen=True)
class Reparameterization(EstimatorOptions):
    """Gradient of the ELBO from gradients of the model.

    For factor s, with draws z, stored model gradients g and today's parameters l::

        mean_m w_ms <g_ms, dz_ms/dl> + dH(q_s)/dl

    where dz/dl is the derivative along the draw's path at fixed z (the implicit reparameterization gradient).

    Attributes:
        entropy: ``"exact"`` takes the entropy's gradient in closed form; ``"weighted"`` multiplies it by the
            mean weight, as the paper does; ``"sticking"`` (sticking-the-landing, Roeder et al. 2017) replaces
            it by subtracting the score of q from the model's gradient: its noise vanishes where q equals the
            posterior.
    """

    entropy: Literal["exact", "weighted", "sticking"] = "exact"

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            self.entropy in ("exact", "weighted", "sticking"),
            ConfigurationError,
            f"entropy must be 'exact', 'weighted' or 'sticking'; got {self.entropy!r}.",
        )

    def _evaluate(self, target: Target, draws: Array, batch: Batch) -> tuple[Array, Array]:
        return target.values_and_gradients(draws, batch)

    def _gradient(self, weighting: Weighting) -> Callable[[Params, Record], Params]:
        approximation = weighting.approximation
        score = jax.grad(lambda z, params: approximation.log_density(params, z).sum())

        def gradient(params: Params, records: Record) -> Params:
            coefficients = weighting.coefficients(params, records)
            pull = records.gradient
            if self.entropy == "sticking":
                pull = pull - jax.vmap(jax.vmap(score, (0, None)), (0, None))(records.draws, params)
            pull = approximation.spread(coefficients) * pull

            def surrogate(params: Params) -> Array:
                paths = jax.vmap(jax.vmap(approximation.path, (None, 0)), (None, 0))(params, records.draws)
                carried = jnp.sum(pull * paths)
                if self.entropy == "sticking":
                    return carried
                entropy = approximation.entropy(params)
                if self.entropy == "weighted":
                    entropy = entropy * coefficients.sum(axis=(0, 1))
                return carried + jnp.sum(entropy)

            return jax.grad(surrogate)(params)

        return gradient
