"""Importance sampled SAG: Algorithm 3 of Sakaya & Klami (2017)."""

from dataclasses import dataclass

from isvi.algorithms.base import Algorithm, Boolean, Memory
from isvi.algorithms.isgd import ISGD
from isvi.algorithms.start import after_one_pass
from isvi.core.errors import ConfigurationError, require
from isvi.estimators.base import Estimator
from isvi.families.base import Params
from isvi.memory.record import Record
from isvi.memory.store import RecordStore


@dataclass(frozen=True)
class ISAG:
    """A new record every step, and the sum over all mini-batches' records, each reweighted and
    re-transported to today's parameters.

    Attributes:
        latest: sum only the latest K records; None keeps one record per mini-batch.
        start: what the first pass over the data is made with.
    """

    latest: int | None = None
    start: ISGD = ISGD()

    def __post_init__(self) -> None:
        require(
            self.latest is None or (isinstance(self.latest, int) and self.latest >= 1),
            ConfigurationError,
            f"latest is how many records to keep, at least 1, or None for one per mini-batch; got {self.latest!r}.",
        )

    def bind(self, estimator: Estimator, num_batches: int) -> Algorithm:
        def init_store(params: Params, record: Record) -> RecordStore:
            return RecordStore.empty(record, slots=self.latest or num_batches)

        def update_store(params: Params, memory: Memory, fresh: Boolean) -> RecordStore:
            if self.latest is None:
                return memory.store.put(memory.newest, slot=memory.newest.batch)
            return memory.store.put_next(memory.newest, fresh)

        isag = Algorithm(
            init_store=init_store,
            wants_record=lambda key, params, memory: True,
            update_store=update_store,
            gradient=lambda params, memory: estimator.gradient(params, memory.store.records),
            health=lambda params, memory: estimator.health(params, memory.store.records),
        )
        return after_one_pass(self.start.bind(estimator, num_batches), then=isag, num_batches=num_batches)
