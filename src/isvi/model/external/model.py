"""A model with a callable in the place of its likelihood, or of its whole density."""

from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from isvi.core.errors import ConfigurationError, DataError, require
from isvi.data.source import Source
from isvi.data.tables import as_array, as_columns
from isvi.model.external.call import External
from isvi.model.external.rows import ROW
from isvi.model.model import Model


def no_log_prior(values: dict[str, Array]) -> Array:
    """For callables whose density holds everything."""
    return jnp.zeros(())


@dataclass(frozen=True)
class ExternalModel(Model):
    """A model whose likelihood (or whole density) is evaluated outside JAX.

    ``log_prior`` is a JAX function as in any model; by default the external density holds everything.
    """

    external: External = field(kw_only=True)

    def with_rows(self, data: Any) -> tuple["ExternalModel", Any]:
        """This model with the user's data at hand, and what to cut into mini-batches: the rows' numbers, or the
        rows themselves if they come from a source."""
        if data is None:
            return self, None
        require(
            self.log_prior is not no_log_prior,
            ConfigurationError,
            f"With data, the function given to {self.external.door} is called as value_and_grad(z, rows) and gives "
            "the log likelihood of these rows, which is then scaled to all of them. Give the prior apart, in JAX: "
            "log_prior=lambda z: ...",
        )
        if isinstance(data, Source):
            return self, data
        rows = jax.tree.map(
            lambda column: as_array(column, "a column of the data"),
            as_columns(data),
            is_leaf=lambda leaf: not isinstance(leaf, (dict, tuple)),
        )
        lengths = {np.shape(column)[:1] for column in jax.tree.leaves(rows)}
        require(
            len(lengths) == 1 and lengths not in ({()}, {(0,)}),
            DataError,
            "All arrays must have the same number of rows, at least one (the first axis); got shapes "
            f"{[np.shape(column) for column in jax.tree.leaves(rows)]}.",
        )
        ((size,),) = lengths
        return replace(self, external=replace(self.external, rows=rows)), {ROW: np.arange(size, dtype=np.int32)}
