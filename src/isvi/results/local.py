"""The local latents of groups or rows, recovered after a fit: given draws of the global latents, on demand."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from isvi.core.errors import ConfigurationError, DataError, require
from isvi.data.arrays import checked_arrays
from isvi.data.dataset import Dataset
from isvi.data.groups.grouped import Grouped
from isvi.data.groups.grouped_files import GroupedStream
from isvi.data.groups.packs import Pack, Packs
from isvi.model.local.binding import marginal_of
from isvi.model.local.marginal import Marginal, as_pack
from isvi.model.local.posterior import Given, given

if TYPE_CHECKING:
    from isvi.results.fit import Fit

ROWS_AT_ONCE = 1000


@dataclass(frozen=True)
class Local:
    """The posterior of local latents.

    Attributes:
        groups: what they belong to: labels of groups, or numbers of rows.
        draws: by latent, ``(draws, groups, ...)``: draw ``i`` goes with draw ``i`` of the global latents.
        mean: by latent, ``(groups, ...)``.
        sd: likewise.
        given: the draws of the global latents.
        effective: for each group, the share of candidates that counted when its draws were picked, in the worst draw.
            A small one tells that the group's posterior is far from a Gaussian, and its draws a rough picture.
    """

    groups: np.ndarray
    draws: dict[str, np.ndarray]
    mean: dict[str, np.ndarray]
    sd: dict[str, np.ndarray]
    given: dict[str, np.ndarray]
    effective: np.ndarray

    def __repr__(self) -> str:
        count = len(next(iter(self.given.values())))
        return f"Local({', '.join(self.draws)} of {len(self.groups):,} groups; {count:,} draws)"


def local(fit: "Fit", groups: Sequence[Any] | None, data: Any, new: int | None, num_samples: int, seed: int) -> Local:
    """See :meth:`isvi.Fit.local`."""
    marginal = marginal_of(fit.model)
    require(
        new is None or (groups is None and data is None),
        ConfigurationError,
        "fit.local(new=...) is about groups of which there are no data: give neither groups nor data with it.",
    )
    draws = fit.draw_latents(num_samples, seed)
    batches = _unseen(fit, new) if new is not None else _batches(fit, groups, data)
    keys = jax.random.split(jax.random.key(seed + 1), num_samples)
    compute = jax.jit(partial(_at_each_draw, marginal))
    parts = [(labels, there, jax.device_get(compute(keys, draws, pack))) for labels, there, pack in batches]
    return _together(parts, draws, None if groups is None else list(groups))


def _at_each_draw(marginal: Marginal, keys: jax.Array, draws: dict[str, jax.Array], pack: Pack) -> Given:
    """With a leading axis for the draws of the global latents, one after the other: groups fill the machine."""
    own = jax.random.fold_in
    first = pack.number[0]
    return jax.lax.map(lambda one: given(marginal, own(one[0], first), one[1], pack), (keys, draws))


Batches = Iterator[tuple[np.ndarray, np.ndarray, Pack]]
"""Labels of groups, which of them are there, and their rows."""


def _batches(fit: "Fit", groups: Sequence[Any] | None, data: Any) -> Batches:
    if data is None:
        dataset = fit.data()
        require(
            isinstance(dataset, Packs),
            ConfigurationError,
            "The groups are in files, which are not searched for some of them: "
            "fit.local(data=isvi.data.grouped(rows, by=...)) takes their rows."
            if isinstance(dataset, GroupedStream)
            else "Which row is which is not kept where every row has latents of its own: fit.local(data=rows).",
        )
        assert isinstance(dataset, Packs)
        return _of_groups(dataset.groups, groups, dataset)
    if isinstance(data, Grouped):
        return _of_groups(data, groups, data.cut(ROWS_AT_ONCE))
    require(groups is None, ConfigurationError, "groups are of isvi.data.grouped(data, by=...); these data are rows.")
    return _of_rows(data)


def _of_groups(grouped: Grouped, groups: Sequence[Any] | None, packs: Packs) -> Batches:
    if groups is not None:
        numbers = grouped.numbers(groups)
        unknown = [label for label, number in zip(groups, numbers, strict=True) if number < 0]
        require(
            not unknown and len(numbers) > 0,
            DataError,
            f"the data hold no group {', '.join(map(repr, unknown[:3]))}. For groups of which there are no data: "
            "fit.local(new=1)."
            if unknown
            else "groups is empty: name at least one, or leave it out for all.",
        )
        yield grouped.labels[numbers], np.ones(len(numbers), bool), grouped.pack(numbers)
        return
    for index in range(packs.count):
        pack = jax.tree.map(lambda a, i=index: a[i], packs.full)
        numbers = np.asarray(pack.number)
        yield grouped.labels[np.maximum(numbers, 0)], numbers >= 0, pack


def _of_rows(data: Any) -> Batches:
    _, num_rows = checked_arrays(data)
    dataset = Dataset.from_arrays(data, min(num_rows, ROWS_AT_ONCE), None)
    for index in range(dataset.num_batches):
        rows: Any = dataset.rest
        if index < num_rows // dataset.batch_size:
            rows = jax.tree.map(lambda a, i=index: a[i], dataset.full)
        pack = as_pack(rows)
        first, count = index * dataset.batch_size, pack.number.shape[0]
        numbers = np.arange(first, first + count)
        yield numbers, np.ones(count, bool), pack._replace(number=jnp.asarray(numbers, jnp.int32))


def _unseen(fit: "Fit", count: int) -> Batches:
    """Groups without rows. Some row must stand there all the same, and is marked as not there."""
    require(
        isinstance(count, (int, np.integer)) and count >= 1,
        ConfigurationError,
        f"fit.local(new=...) takes a positive number of groups; got {count!r}.",
    )
    full = fit.data().first.full
    row = jax.tree.map(lambda a: a[0, 0, 0], full.rows) if isinstance(full, Pack) else jax.tree.map(_first, full)
    rows = jax.tree.map(lambda a: jnp.broadcast_to(a, (count, 1, *a.shape)), row)
    numbers = np.arange(count)
    there = jnp.zeros((count, 1), bool)
    yield numbers, np.ones(count, bool), Pack(rows, there, None, jnp.asarray(numbers, jnp.int32))


def _first(column: jax.Array) -> jax.Array:
    return column[0, 0]


def _together(
    parts: list[tuple[np.ndarray, np.ndarray, Given]], draws: dict[str, jax.Array], order: list[Any] | None
) -> Local:
    labels = np.concatenate([labels[there] for labels, there, _ in parts])
    # Asked for by name, groups stay in that order; otherwise they are sorted, as packs hold them in any.
    places = np.arange(len(labels)) if order is not None else np.argsort(labels, kind="stable")

    def joined(values: list[Any]) -> np.ndarray:
        """Along the groups: the second axis, behind the draws."""
        found = np.concatenate([value[:, there] for value, (_, there, _) in zip(values, parts, strict=True)], axis=1)
        return found[:, places]

    names = list(parts[0][2].draw)
    drawn = {name: joined([one.draw[name] for _, _, one in parts]) for name in names}
    mean, sd = {}, {}
    for name in names:
        means = joined([one.mean[name] for _, _, one in parts]).astype(np.float64)
        squares = joined([one.square[name] for _, _, one in parts]).astype(np.float64)
        mean[name] = means.mean(axis=0)
        # The variance within each draw of the global latents, and between these draws.
        within = np.maximum(squares - means**2, 0.0).mean(axis=0)
        sd[name] = np.sqrt(within + means.var(axis=0))
    effective = joined([one.effective for _, _, one in parts]).min(axis=0)
    return Local(labels[places], drawn, mean, sd, jax.device_get(draws), effective)


def predict_local(fit: "Fit", data: Any, num_samples: int, seed: int) -> dict[str, np.ndarray]:
    """Posterior predictive draws of a model with local latents: every row sees those of its own group, from the
    group's posterior if it was fitted, and from its prior if it is new. Rows that are a group each are all new."""
    assert fit.model.predict is not None
    grouped = data
    if data is None:
        dataset = fit.data()
        require(isinstance(dataset, Packs), ConfigurationError, "fit.predict needs the rows: fit.predict(data).")
        grouped = dataset.groups  # type: ignore[union-attr]
    if not isinstance(grouped, Grouped):
        rows, count = checked_arrays(grouped)
        unseen = local(fit, None, None, count, num_samples, seed)
        return dict(fit.model.predict({**unseen.given, **unseen.draws}, rows, seed))
    effects, global_draws = _of_known_and_new(fit, grouped, num_samples, seed)
    back = np.argsort(grouped.order, kind="stable")  # the rows as they were given
    of_row = np.repeat(np.arange(len(grouped.labels)), grouped.sizes)[back]
    by_row = {name: values[:, of_row] for name, values in effects.items()}
    rows = jax.tree.map(lambda a: a[back], grouped.arrays)
    return dict(fit.model.predict({**global_draws, **by_row}, rows, seed))


def _of_known_and_new(
    fit: "Fit", grouped: Grouped, num_samples: int, seed: int
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Draws of the latents of all groups in ``grouped``, and of the global latents."""
    dataset = fit.data()
    fitted = dataset.groups.numbers(grouped.labels) if isinstance(dataset, Packs) else np.full(len(grouped.labels), -1)
    known, unknown = np.flatnonzero(fitted >= 0), np.flatnonzero(fitted < 0)
    found = []
    if len(known):
        found.append((known, local(fit, list(grouped.labels[known]), None, None, num_samples, seed)))
    if len(unknown):
        found.append((unknown, local(fit, None, None, len(unknown), num_samples, seed)))
    first = found[0][1]
    effects = {
        name: np.zeros((num_samples, len(grouped.labels), *v.shape[2:]), v.dtype) for name, v in first.draws.items()
    }
    for places, one in found:
        for name, values in one.draws.items():
            effects[name][:, places] = values
    return effects, first.given
