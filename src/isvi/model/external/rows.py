"""Rows of an external model: mini-batches hold their numbers, the callable's own data stay as they came."""

from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from isvi.data.dataset import Batch, Dataset

ROW = "isvi row"
"""The one column of the data set that mini-batches of an external model are made of: the rows' numbers."""


def host_rows(batch: Batch) -> Any:
    """The numbers of a mini-batch's rows; or the rows themselves, if they come from a source."""
    data, index = batch.dataset, int(batch.index)
    if data.rest is not None and index == data.num_batches - 1:
        return numbers(data.rest)
    place = index if data.offset is None else index - int(data.offset)
    return numbers(jax.tree.map(lambda column: column[place], data.full))


def all_host_rows(data: Dataset) -> Iterator[Any]:
    """What :func:`host_rows` gives, for all mini-batches that are in memory."""
    if data.full is None:
        yield None
        return
    for place in range(len(jax.tree.leaves(data.full)[0])):
        yield numbers(jax.tree.map(lambda column, at=place: column[at], data.full))
    if data.rest is not None:
        yield numbers(data.rest)


def numbers(rows: Any) -> Any:
    """What the callable's rows are picked by, of what a mini-batch holds."""
    return np.asarray(rows[ROW]) if isinstance(rows, dict) and ROW in rows else rows
