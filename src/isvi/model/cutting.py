"""Data as mini-batches; or as one, in the order in which the rows came, where they depend on each other."""

import logging
from collections.abc import Mapping
from typing import Any

from isvi.core.errors import ModelError, require
from isvi.data.dataset import Dataset
from isvi.data.files.npy import RESIDENT_BYTES
from isvi.data.opening import DEFAULT_BATCH_SIZE, Data, as_source, first_rows, open_data
from isvi.data.source import Source
from isvi.model.checks import check_model
from isvi.model.local import Marginal
from isvi.model.missing import check_missing
from isvi.model.model import Model
from isvi.model.rows_check import ROWS, dependence

log = logging.getLogger("isvi")


def cut(
    model: Model,
    data: Any,
    batch_size: int | None = None,
    shuffle_seed: int | None = 0,
    few_rows: int = DEFAULT_BATCH_SIZE,
    *,
    independent: bool | None = None,
    around: Mapping[str, Any] | None = None,
) -> tuple[Data, bool | None]:
    """Check a model against its data, and cut these into mini-batches unless the rows depend on each other.

    Args:
        batch_size, shuffle_seed, few_rows: as of :func:`isvi.data.open_data`.
        independent: whether the rows are; None finds out.
        around: constrained values of latents where the fit starts.

    Returns:
        The data, and whether the rows are independent; None where that did not matter.
    """
    around = around or {}
    data = as_source(data)
    # With latents of groups or rows the likelihood is written for one row: there is nothing to find out.
    local = isinstance(model.log_likelihood, Marginal)
    independent = True if local else independent
    dataset = open_data(data, batch_size, shuffle_seed, few_rows, missing=not local)
    alone = dataset.num_batches == 1
    looked_at = max(2, min(dataset.batch_size, ROWS))
    # Before a window is read: a loader gives out its rows to one reader at a time.
    rows = first_rows(data, looked_at) if independent is None and not alone else None
    check_model(model, dataset.first)
    if not local:
        check_missing(model, data, alone, around)
    if alone or independent:
        return dataset, independent
    found = None if rows is None else dependence(model, rows, around)
    if independent is None and found is None:
        return dataset, True
    dataset.release()
    if found is not None:
        log.warning(
            "the log likelihood is not a sum over independent rows: %s. All %s rows are used at once, in their order. "
            "If mini-batches are right all the same: isvi.fit(..., independent_rows=True)",
            found,
            f"{dataset.size:,}",
        )
    return _at_once(data, found or "independent_rows=False was given"), False


def _at_once(data: Any, why: str) -> Dataset:
    """All rows as one mini-batch."""
    if not isinstance(data, Source):
        return Dataset.from_arrays(data, missing=True)
    size = data.num_rows * data.row_bytes
    require(
        size <= RESIDENT_BYTES,
        ModelError,
        f"The log likelihood is not a sum over independent rows, so that they cannot be cut into mini-batches: {why}. "
        f"All {data.num_rows:,} take {size / 1e9:.2g} GB together, and are not read into memory. Make one row of what "
        "depends on each other (a series, a group) and sum over such rows; or pass arrays that fit. If mini-batches "
        "are right all the same: isvi.fit(..., independent_rows=True).",
    )
    return Dataset.from_arrays(data.head(data.num_rows))
