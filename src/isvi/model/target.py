"""The log joint as the estimators see it: a function of the flat vector z and a mini-batch."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from isvi.core.coordinates import Coordinates
from isvi.data.dataset import Batch, Dataset
from isvi.data.opening import Data
from isvi.model.model import Model


@dataclass(frozen=True)
class Target:
    """log p(x, z) of a model in the coordinates of an approximation.

    One of B mini-batches gives ``B log p(x_b | z) + log p(z) + log|det J|``: an unbiased estimate of the log
    joint of all rows, as every epoch visits each mini-batch once. Weighted by their shares 1/B they sum to the
    log joint itself, with the prior counted once, also when the last mini-batch is shorter.
    """

    model: Model
    coordinates: Coordinates

    on_host: ClassVar[bool] = False
    """Whether the model must be evaluated outside compiled code."""

    def log_prior(self, z: Float[Array, " dim"]) -> Float[Array, ""]:
        """The log prior density of z, with the Jacobians of the constraints."""
        values, log_jacobian = self.coordinates.decode(z)
        return jnp.asarray(self.model.log_prior(values) + log_jacobian, z.dtype)

    def log_likelihood(self, z: Float[Array, " dim"], rows: Any) -> Float[Array, ""]:
        """The log likelihood of some rows."""
        if self.model.log_likelihood is None:
            return jnp.zeros((), z.dtype)
        values, _ = self.coordinates.decode(z)
        return jnp.asarray(self.model.log_likelihood(values, rows), z.dtype)

    def log_joint(self, z: Float[Array, " dim"], rows: Any, scale: float) -> Float[Array, ""]:
        """The log joint of some rows, with their likelihood multiplied by ``scale``."""
        return self.log_prior(z) + scale * self.log_likelihood(z, rows)

    def exact_values(self, draws: Float[Array, "draws dim"], dataset: Dataset) -> Float[Array, " draws"]:
        """The log joint of all rows at each draw: a pass over the data, in the precision of the draws."""
        return self._plus_likelihoods(jax.vmap(self.log_prior)(draws), draws, dataset)

    def whole_values(self, draws: Float[Array, "draws dim"], data: Data) -> Float[Array, " draws"]:
        """:meth:`exact_values`, compiled, for data that need not be in memory: one part after the other."""
        if isinstance(data, Dataset):
            return jax.jit(self.exact_values)(draws, data)
        add = jax.jit(self._plus_likelihoods)
        total = jax.jit(jax.vmap(self.log_prior))(draws)
        for part in data.parts():
            total = jax.block_until_ready(add(total, draws, part))
        return total

    def _plus_likelihoods(
        self, total: Float[Array, " draws"], draws: Float[Array, "draws dim"], dataset: Dataset
    ) -> Float[Array, " draws"]:
        """``total`` and the log likelihoods of all rows of a data set."""
        likelihoods = jax.vmap(self.log_likelihood, (0, None))
        if dataset.full is None:
            return total
        total, _ = jax.lax.scan(
            lambda sum_so_far, rows: (sum_so_far + likelihoods(draws, rows), None), total, dataset.full
        )
        return total if dataset.rest is None else total + likelihoods(draws, dataset.rest)

    def values(self, draws: Float[Array, "draws dim"], batch: Batch) -> Float[Array, " draws"]:
        """The log joint at each draw, estimated from one mini-batch."""

        def on_rows(rows: Any, num_rows: int) -> Array:
            return _at_each(lambda z: self.log_joint(z, rows, batch.scale), draws)

        return batch.apply(on_rows)

    def values_and_gradients(
        self, draws: Float[Array, "draws dim"], batch: Batch
    ) -> tuple[Float[Array, " draws"], Float[Array, "draws dim"]]:
        """The log joint and its gradient in z at each draw: the expensive part of everything."""

        def on_rows(rows: Any, num_rows: int) -> tuple[Array, Array]:
            return _at_each(jax.value_and_grad(lambda z: self.log_joint(z, rows, batch.scale)), draws)

        return batch.apply(on_rows)


def _at_each(function: Callable[[Array], Any], draws: Float[Array, "draws dim"]) -> Any:
    """``function`` at every draw. A single one is not batched: on a CPU that can be several times faster, because
    reductions over a batch axis of one are not fused."""
    if draws.shape[0] == 1:
        return jax.tree.map(lambda leaf: leaf[None], function(draws[0]))
    return jax.vmap(function)(draws)
