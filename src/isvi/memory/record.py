"""The record: what one evaluation of the model leaves behind."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int


class Record(NamedTuple):
    """Draws, how likely they were when drawn, and what the model said there.

    Nothing in it depends on today's variational parameters, so it can be used again when they have moved. A
    fresh record is one whose weights are 1. Functions that take *records* expect a leading axis over records
    on every field.
    """

    draws: Float[Array, "*records draws dim"]
    """z_m."""
    log_density: Float[Array, "*records draws factors"]
    """log q_s(z_ms) under the parameters that drew z (for the paper's weights: log phi(eps_ms))."""
    log_joint: Float[Array, "*records draws"]
    """log p(x_b, z_m), scaled to all rows."""
    gradient: Float[Array, "*records draws gradient_dim"]
    """Its gradient in z. Without entries where the estimator does not use it (score function)."""
    batch: Int[Array, "*records"]
    """Index of the mini-batch b."""
    share: Float[Array, "*records"]
    """1/B: the record's say in a sum over records. 0 marks an empty slot."""

    @property
    def finite(self) -> Bool[Array, ""]:
        """Whether the model answered with numbers."""
        return jnp.all(jnp.isfinite(self.log_joint)) & jnp.all(jnp.isfinite(self.gradient))

    def alone(self) -> "Record":
        """This one record, with the leading axis that functions of records expect."""
        return jax.tree.map(lambda leaf: leaf[None], self)
