"""Begin with one pass of another algorithm, as the paper begins SAG and I-SAG with I-SGD."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, PRNGKeyArray

from isvi.algorithms.base import Algorithm, Boolean, Memory
from isvi.estimators.weights import WeightHealth
from isvi.families.base import Params
from isvi.memory.record import Record


class StartedStore(NamedTuple):
    store: Any
    records_made: Int[Array, ""]


def after_one_pass(of: Algorithm, then: Algorithm, num_batches: int) -> Algorithm:
    """Follow ``of`` until every mini-batch has been visited, filling the store of ``then`` on the way."""

    def inner(memory: Memory) -> Memory:
        return memory._replace(store=memory.store.store)

    def starting(memory: Memory) -> Bool[Array, ""]:
        return memory.store.records_made < num_batches

    def init_store(params: Params, record: Record) -> StartedStore:
        return StartedStore(then.init_store(params, record), jnp.int32(0))

    def wants_record(key: PRNGKeyArray, params: Params, memory: Memory) -> Array:
        early = of.wants_record(key, params, memory)
        return jnp.where(starting(memory), early, then.wants_record(key, params, inner(memory)))

    def update_store(params: Params, memory: Memory, fresh: Boolean) -> StartedStore:
        made = memory.store.records_made + jnp.asarray(fresh, jnp.int32)
        return StartedStore(then.update_store(params, inner(memory), fresh), made)

    def gradient(params: Params, memory: Memory) -> Params:
        return jax.lax.cond(
            starting(memory),
            lambda: of.gradient(params, memory),
            lambda: then.gradient(params, inner(memory)),
        )

    def health(params: Params, memory: Memory) -> WeightHealth:
        return jax.lax.cond(
            starting(memory), lambda: of.health(params, memory), lambda: then.health(params, inner(memory))
        )

    return Algorithm(init_store, wants_record, update_store, gradient, health)
