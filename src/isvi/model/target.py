"""The log joint as the estimators see it: a function of the flat vector z and a mini-batch."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from isvi.core.coordinates import Coordinates
from isvi.core.settings import users_settings
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
        with users_settings():
            prior = self.model.log_prior(values)
        return jnp.asarray(prior + log_jacobian, z.dtype)

    def log_likelihood(self, z: Float[Array, " dim"], rows: Any) -> Float[Array, ""]:
        """The log likelihood of some rows."""
        if self.model.log_likelihood is None:
            return jnp.zeros((), z.dtype)
        values, _ = self.coordinates.decode(z)
        with users_settings():
            likelihood = self.model.log_likelihood(values, rows)
        return jnp.asarray(likelihood, z.dtype)

    def log_joint(self, z: Float[Array, " dim"], rows: Any, scale: float) -> Float[Array, ""]:
        """The log joint of some rows, with their likelihood multiplied by ``scale``."""
        return self.log_prior(z) + scale * self.log_likelihood(z, rows)

    def exact_values(self, draws: Float[Array, "draws dim"], dataset: Dataset) -> Float[Array, " draws"]:
        """The log joint of all rows at each draw: a pass over the data, in the precision of the draws."""
        return self._plus_likelihoods(jax.vmap(self.log_prior)(draws), draws, dataset)

    def whole_values(self, draws: Float[Array, "draws dim"], data: Data) -> Float[Array, " draws"]:
        """:meth:`exact_values`, compiled, for data that need not be in memory: one part after the other."""
        log_priors, add_likelihoods = self._compiled
        total = log_priors(draws)
        for part in data.parts():
            total = jax.block_until_ready(add_likelihoods(total, draws, part))
        return total

    @cached_property
    def _compiled(self) -> tuple[Callable[..., Array], Callable[..., Array]]:
        """Kept, so that further draws compile nothing."""
        return jax.jit(jax.vmap(self.log_prior)), jax.jit(self._plus_likelihoods)

    def _plus_likelihoods(
        self, total: Float[Array, " draws"], draws: Float[Array, "draws dim"], dataset: Dataset
    ) -> Float[Array, " draws"]:
        """``total`` and the log likelihoods of all rows of a data set."""
        likelihoods = jax.vmap(self.log_likelihood, (0, None))
        if dataset.full is None:
            return total

        def add(sum_so_far: Array, rows: Any) -> tuple[Array, None]:
            return sum_so_far + likelihoods(draws, _in_precision(rows, draws.dtype)), None

        total, _ = jax.lax.scan(add, total, dataset.full)
        return total if dataset.rest is None else add(total, dataset.rest)[0]

    def values(self, draws: Float[Array, "draws dim"], batch: Batch) -> Float[Array, " draws"]:
        """The log joint at each draw, estimated from one mini-batch."""

        def on_rows(rows: Any, num_rows: int) -> Array:
            rows = _in_precision(rows, draws.dtype)
            return _at_each(lambda z: self.log_joint(z, rows, batch.scale), draws)

        return batch.apply(on_rows)

    def values_and_gradients(
        self, draws: Float[Array, "draws dim"], batch: Batch
    ) -> tuple[Float[Array, " draws"], Float[Array, "draws dim"]]:
        """The log joint and its gradient in z at each draw: the expensive part of everything."""

        def on_rows(rows: Any, num_rows: int) -> tuple[Array, Array]:
            rows = _in_precision(rows, draws.dtype)
            return _at_each(jax.value_and_grad(lambda z: self.log_joint(z, rows, batch.scale)), draws)

        return batch.apply(on_rows)


def _in_precision(rows: Any, dtype: Any) -> Any:
    """The rows with their floats in the precision of the draws: a model that scans over them with a float of the
    data as the first carry must not find two precisions."""
    return jax.tree.map(lambda a: a.astype(dtype) if jnp.issubdtype(a.dtype, jnp.floating) else a, rows)


def _at_each(function: Callable[[Array], Any], draws: Float[Array, "draws dim"]) -> Any:
    """``function`` at every draw. A single one is not batched: on a CPU that can be several times faster, because
    reductions over a batch axis of one are not fused."""
    if draws.shape[0] == 1:
        return jax.tree.map(lambda leaf: leaf[None], function(draws[0]))
    return jax.vmap(function)(draws)
