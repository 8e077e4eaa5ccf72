"""Which latents belong to groups of rows, found by asking the model.

A latent ``effects`` with one entry per group, used as ``effects[row["group"]]``, has a special place: no row knows two
of its entries, and neither does the prior. It is asked at the start, at a few points: half of the groups' entries are
moved, and the gradients of the other half must stay where they are.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from isvi.core.latents import Latent

LEAST_GROUPS = 8
STAYS = 1e-4
"""Gradients that change by less than this part of what the moved entries' do, stay."""
WIDTH = 0.5
"""Of the points at which a model is asked, around the start."""

Gradients = Callable[[np.ndarray], list[np.ndarray]]
"""At points (points, dim): gradients of the prior and the likelihood, each (points, dim)."""


@dataclass(frozen=True)
class Groups:
    """Where the groups' entries are: behind those that are shared, latent after latent, group after group in each.

    Attributes:
        shared: entries that belong to no group.
        number: of groups.
        widths: how many entries each latent has for a group.
    """

    shared: int
    number: int
    widths: tuple[int, ...]

    @property
    def dim(self) -> int:
        return self.shared + self.number * sum(self.widths)

    @property
    def unknowns(self) -> int:
        """In a group's row of the curvature."""
        return self.shared + sum(self.widths)

    @property
    def members(self) -> np.ndarray:
        """The entries of every group, (groups, entries)."""
        starts = self.shared + self.number * np.cumsum([0, *self.widths[:-1]])
        blocks = [np.arange(self.number * width).reshape(self.number, width) for width in self.widths]
        return np.concatenate([start + block for start, block in zip(starts, blocks, strict=True)], axis=1)


def candidates(latents: Mapping[str, Latent]) -> list[tuple[str, ...]]:
    """Latents that may belong to groups, the most promising first: all that have the same number of rows, then each
    alone. The rest must be fewer than half of all entries."""
    by_number: dict[int, list[str]] = {}
    for name, latent in latents.items():
        one_by_one = latent.unconstrained_shape == latent.shape
        if one_by_one and latent.shape and latent.shape[0] >= LEAST_GROUPS:
            by_number.setdefault(latent.shape[0], []).append(name)
    found = [tuple(names) for names in by_number.values()]
    found += [(name,) for names in found if len(names) > 1 for name in names]
    dim = sum(latent.unconstrained_size for latent in latents.values())

    def unknowns(names: tuple[str, ...]) -> int:
        """In a row of the curvature, if these belong to groups."""
        inside = sum(latents[name].unconstrained_size for name in names)
        return dim - inside + inside // latents[names[0]].shape[0]

    return sorted((names for names in found if unknowns(names) <= dim / 2), key=unknowns)


def independent(
    names: tuple[str, ...], entries: Mapping[str, np.ndarray], start: np.ndarray, gradients: Gradients, points: int
) -> bool:
    """Whether no row, nor the prior, knows two of the groups' entries.

    Args:
        names: latents that may belong to groups.
        entries: of each latent, (groups, ...).
        start: a point.
        gradients: asked at so many ``points``.
    """
    generator = np.random.default_rng(0)
    members = np.concatenate([entries[name].reshape(len(entries[name]), -1) for name in names], axis=1)
    base = start + WIDTH * generator.normal(size=start.shape)
    moved = np.broadcast_to(base, (points, len(base))).copy()
    inside = np.zeros((points, len(members)), bool)
    for point in range(1, points):
        chosen = generator.permutation(len(members))[: len(members) // 2]
        inside[point, chosen] = True
        moved[point, members[chosen]] += WIDTH * generator.normal(size=(len(chosen), members.shape[1]))
    for found in gradients(moved.astype(start.dtype)):
        if not np.isfinite(found).all():
            return False
        changes = np.abs(found[1:] - found[:1])[:, members].max(axis=2)
        most = np.where(inside[1:], changes, 0).max()
        if np.where(inside[1:], 0, changes).max() > STAYS * most:
            return False
    return True
