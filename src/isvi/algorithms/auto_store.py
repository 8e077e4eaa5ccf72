"""What the default method remembers, and for how long."""

from dataclasses import dataclass
from math import inf
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from isvi.algorithms.approach import Approach
from isvi.families.approximation import Approximation
from isvi.families.base import Params
from isvi.memory.record import Record
from isvi.memory.store import RecordStore
from isvi.optim.curvature import Curvature, Evidence
from isvi.optim.secants import Secants
from isvi.optim.trust import Trust

LARGEST_DENSE = 600
"""Up to this dimension a full curvature matrix may be estimated."""
LEVEL_RECORDS = 20
"""The level of the gradient is averaged over at least this many records."""
STORED_RECORDS = 60
"""At least this many records are kept."""
FIT_OPERATIONS = 4.0
"""A dense estimate of the curvature takes as long as this times dim^3 of a model's floating-point operations."""
FIT_SHARE = 0.5
"""How long such estimates may take, compared to the records between them. But no more records are waited for than there
are dimensions, halved: so many do no harm."""


@dataclass(frozen=True)
class Sizes:
    """What follows from the dimension and the number of mini-batches."""

    num_batches: int
    generations: int
    level_generations: int
    update_every: int
    """Records from one step of the memory phase to the next. More steps would follow the noise of single records."""
    refit_every: int
    """Records from one dense estimate of the curvature to the next."""
    dense_dim: int

    @classmethod
    def of(cls, approximation: Approximation, num_batches: int, operations: float = inf) -> "Sizes":
        """``operations`` are those of a record."""
        dim = approximation.dim
        update_every = max(1, min(num_batches // 10, 8))
        affordable = FIT_OPERATIONS * dim**3 / (FIT_SHARE * max(operations, 1.0))
        return cls(
            num_batches=num_batches,
            generations=-(-STORED_RECORDS // num_batches),
            level_generations=-(-LEVEL_RECORDS // num_batches),
            update_every=update_every,
            refit_every=max(update_every, int(min(affordable, dim / 2))),
            dense_dim=dim if dim <= LARGEST_DENSE else 0,
        )

    @property
    def level_records(self) -> int:
        """Records in the average that stands for the gradient of all data: a whole number of passes."""
        return self.level_generations * self.num_batches


class AutoStore(NamedTuple):
    """What the default method remembers."""

    records: RecordStore
    """A slot per mini-batch and generation."""
    made_at: Int[Array, " slots"]
    """When the slot was filled, counted in records; -1 while empty."""
    approach: Approach
    remembered: Int[Array, ""]
    """Records made since the approach ended."""
    evidence: Evidence
    """What all pairs so far say about the curvature; starts anew when they no longer predict new ones."""
    curvature: Curvature
    dense_at: Int[Array, ""]
    """When the dense curvature was last estimated."""
    secants: Secants
    anchors: Float[Array, "2 2 dim"]
    """(Z, G) one and one half pass ago."""
    trust: Trust
    target: Params
    """Where the next step goes."""
    left: Float[Array, ""]
    """Predicted nats per entry still to be gained."""
    settled: Int[Array, ""]
    """Records made since ``left`` was last above the tolerance."""
    reversals: Int[Array, ""]
    """How often the parameters had to go back."""

    @classmethod
    def start(cls, sizes: "Sizes", params: Params, record: Record) -> "AutoStore":
        """Nothing remembered yet; ``record`` gives the shapes."""
        dim, dtype = record.draws.shape[-1], record.draws.dtype
        zero = jnp.int32(0)
        return cls(
            records=RecordStore.empty(record, slots=sizes.generations * sizes.num_batches),
            made_at=jnp.full(sizes.generations * sizes.num_batches, -1, jnp.int32),
            approach=Approach.start(dim, dtype),
            remembered=zero,
            evidence=Evidence.none(dim, sizes.dense_dim, dtype),
            curvature=Curvature.diagonal(jnp.ones(dim, dtype), sizes.dense_dim),
            dense_at=zero,
            secants=Secants.none(dim, dtype),
            anchors=jnp.zeros((2, 2, dim), dtype),
            trust=Trust.start(params, sizes.num_batches, dtype),
            target=params,
            left=jnp.full((), jnp.inf, dtype),
            settled=zero,
            reversals=zero,
        )


def remember(sizes: Sizes, store: AutoStore, record: Record, keep: Bool[Array, ""]) -> AutoStore:
    """Put the record into its mini-batch's oldest generation."""
    generation = (store.remembered // sizes.num_batches) % sizes.generations
    slot = jnp.where(keep, generation * sizes.num_batches + record.batch, store.records.newest_slot)
    empty_yet = store.remembered == 0
    kept = jax.tree.map(lambda new, old: jnp.where(keep | empty_yet, new, old), record, store.records.newest)
    made_at = store.made_at.at[slot].set(jnp.where(keep, store.remembered, store.made_at[slot]))
    return store._replace(
        records=store.records.put(kept, slot), made_at=made_at, remembered=store.remembered + keep.astype(jnp.int32)
    )
