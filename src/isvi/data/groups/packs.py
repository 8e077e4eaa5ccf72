"""Mini-batches of whole groups, however unequal, without padding every group to the longest.

The rows of a group are cut into *pieces* of a common length; what is missing in its last piece is filled with a row
of its own that is marked as not there. A mini-batch is a *pack*: some groups, all their pieces, and for each piece the
group that it is of. Sums over a group's rows are sums within its pieces, which is fast, and then over its few pieces.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int

from isvi.data.dataset import Dataset

PIECE_COST = 4
"""What a piece costs beside its rows, in rows: finding its group's latents, and adding its sum to the group's."""


class Pack(NamedTuple):
    """Whole groups.

    Attributes:
        rows: the data with axes ``(pieces, length, ...)``.
        there: which of the rows are there; the others only fill a piece.
        group: the place of each piece's group in the pack; None where piece ``i`` is all of group ``i``.
        number: the number of each group over all packs; -1 fills the pack.
    """

    rows: Any
    there: Bool[Array, "pieces length"]
    group: Int[Array, " pieces"] | None
    number: Int[Array, " groups"]


def each_row(rows: Any) -> Pack:
    """Rows as a pack in which every row is a group of its own."""
    count = jax.tree.leaves(rows)[0].shape[0]
    pieces = jax.tree.map(lambda a: a[:, None], rows)
    return Pack(pieces, jnp.ones((count, 1), bool), None, jnp.arange(count, dtype=jnp.int32))


def real_rows(batches: Any) -> Any:
    """The rows of stacked packs, without those that only fill; anything else as it is."""
    if not isinstance(batches, Pack):
        return batches
    return jax.tree.map(lambda a: np.asarray(a)[np.asarray(batches.there)], batches.rows)


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["full", "rest", "offset"],
    meta_fields=["size", "batch_size", "windows", "shuffle_seed", "count", "groups"],
)
@dataclass(frozen=True)
class Packs(Dataset):
    """A data set whose mini-batches are packs; ``full`` is a :class:`Pack` with one more axis in front.

    ``size`` is the number of rows, and ``batch_size`` how many of them were asked for in a mini-batch.

    Attributes:
        count: the number of packs.
        groups: the :class:`isvi.data.Grouped` that they were cut from.
    """

    count: int = 1
    groups: Any = None

    @property
    def num_batches(self) -> int:
        return self.count


def piece_length(sizes: Int[np.ndarray, " groups"]) -> int:
    """The length for which pieces cost least: rows that only fill, against pieces that must be put together."""
    longest = int(sizes.max())
    lengths = np.unique(np.round(np.geomspace(1, longest, 32)).astype(int))
    costs = [float(np.sum(-(-sizes // length)) * (length + PIECE_COST)) for length in lengths[:-1]]
    # As long as the longest group, pieces need not be put together at all.
    costs.append(float(len(sizes) * longest))
    return int(lengths[np.argmin(costs)])


class Plan(NamedTuple):
    """Which row goes where.

    Attributes:
        rows: row numbers by pack, piece and place, with axes ``(packs, pieces, length)``.
        there: as in :class:`Pack`.
        group: likewise.
        number: likewise.
    """

    rows: Int[np.ndarray, "packs pieces length"]
    there: Bool[np.ndarray, "packs pieces length"]
    group: Int[np.ndarray, "packs pieces"]
    number: Int[np.ndarray, "packs groups"]

    @property
    def one_piece_each(self) -> bool:
        """Whether every group is one piece, in its own place."""
        return self.group.shape[1] == self.number.shape[1] and bool(
            (self.group == np.arange(self.group.shape[1])).all()
        )

    @property
    def shape(self) -> tuple[int, int]:
        """Pieces and groups in a pack."""
        return self.group.shape[1], self.number.shape[1]

    def padded(self, pieces: int, groups: int) -> "Plan":
        """With room for so many."""
        more = ((0, 0), (0, pieces - self.group.shape[1]))
        there = np.pad(self.there, (*more, (0, 0)))
        group = np.pad(self.group, more)
        if pieces == groups:
            group = np.where(there.any(axis=2), group, np.arange(pieces, dtype=np.int32))
        number = np.pad(self.number, ((0, 0), (0, groups - self.number.shape[1])), constant_values=-1)
        return Plan(np.pad(self.rows, (*more, (0, 0))), there, group, number)


def plan(sizes: Int[np.ndarray, " groups"], batch_size: int, seed: int | None) -> Plan:
    """Deal groups to packs of about ``batch_size`` rows, or as many as the longest group has.

    Groups are ordered by their length, those of one length at random, and dealt out forth and back: so every pack has
    about as many groups and rows as any other, and is a fair sample of short and long ones. No pack is more than one
    longest group above the mean, so that at most half of all room is left empty.
    """
    length = piece_length(sizes)
    return dealt_out(sizes, length, number_of_packs(sizes, length, batch_size), seed)


def number_of_packs(sizes: Int[np.ndarray, " groups"], length: int, batch_size: int) -> int:
    """For packs of about ``batch_size`` rows."""
    pieces = -(-sizes // length)
    room = max(batch_size * pieces.sum() / sizes.sum(), pieces.max())
    return min(len(sizes), int(np.ceil(pieces.sum() / room)))


def dealt_out(sizes: Int[np.ndarray, " groups"], length: int, num_packs: int, seed: Any) -> Plan:
    """Groups, cut into pieces of this length, as so many packs."""
    pieces = -(-sizes // length)
    mixed = np.arange(len(sizes)) if seed is None else np.random.default_rng(seed).permutation(len(sizes))
    dealt = mixed[np.argsort(-pieces[mixed], kind="stable")] if num_packs > 1 else mixed
    turn, place = np.divmod(np.arange(len(sizes)), num_packs)
    pack = np.where(turn % 2 == 0, place, num_packs - 1 - place)
    return _laid_out(sizes, pieces, length, dealt, pack, turn, num_packs)


def _laid_out(
    sizes: np.ndarray,
    pieces: np.ndarray,
    length: int,
    dealt: np.ndarray,
    pack: np.ndarray,
    turn: np.ndarray,
    num_packs: int,
) -> Plan:
    """``dealt[i]`` is a group, which goes to ``pack[i]`` as its ``turn[i]``-th."""
    starts = np.cumsum(sizes) - sizes
    number = np.full((num_packs, int(turn.max()) + 1), -1, np.int32)
    number[pack, turn] = dealt
    order = np.lexsort((turn, pack))  # groups in the order of packs, and of places in them
    dealt, pack, turn = dealt[order], pack[order], turn[order]
    piece_group, within = _repeated(pieces[dealt])
    piece_pack = pack[piece_group]
    per_pack = np.bincount(piece_pack, minlength=num_packs)
    piece_place = np.arange(len(piece_pack)) - (np.cumsum(per_pack) - per_pack)[piece_pack]
    places = np.arange(length) + (within * length)[:, None]
    of_group = dealt[piece_group]
    there = np.zeros((num_packs, int(per_pack.max()), length), bool)
    there[piece_pack, piece_place] = places < sizes[of_group][:, None]
    rows = np.zeros(there.shape, np.int64)
    rows[piece_pack, piece_place] = starts[of_group][:, None] + np.minimum(places, sizes[of_group][:, None] - 1)
    group = np.zeros(there.shape[:2], np.int32)
    group[piece_pack, piece_place] = turn[piece_group]
    if there.shape[1] == number.shape[1]:
        group[:] = np.where(there.any(axis=2), group, np.arange(there.shape[1]))
    return Plan(rows, there, group, number)


def _repeated(counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """``[2, 1]`` gives ``[0, 0, 1]``, and how many came before of the same kind: ``[0, 1, 0]``."""
    kinds = np.repeat(np.arange(len(counts)), counts)
    return kinds, np.arange(len(kinds)) - np.repeat(np.cumsum(counts) - counts, counts)


def packed(arrays: Any, layout: Plan) -> Pack:
    """The rows, put where the plan says."""
    return Pack(
        jax.tree.map(lambda a: jnp.asarray(a[layout.rows]), arrays),
        jnp.asarray(layout.there),
        None if layout.one_piece_each else jnp.asarray(layout.group),
        jnp.asarray(layout.number),
    )
