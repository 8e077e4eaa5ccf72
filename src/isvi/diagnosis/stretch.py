"""Coordinates for chains in which the directions along which they were slow are as short as the others.

A family without the dependence between latents is too narrow where many of them move together: an intercept against
the effects of all groups. Chains in its coordinates creep along there. How slowly tells how long such a direction is,
and in coordinates that are stretched by that the next chains are as fast along it as along any other.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.sparse.linalg import LinearOperator, eigsh

from isvi.core.coordinates import Coordinates
from isvi.diagnosis.drift import Path
from isvi.results.weights.exploration import Frame

MOST_SMALL = 64
"""Entries of small latents, together, that have directions of their own; the smallest latents come first."""
MOST_FOUND = 20
"""Directions that are found in what the chains did, beside those of latents."""
TRAJECTORIES_PER_DIRECTION = 8
"""Fewer, and chance alone would make some of them look slow."""
SLOW, SLOWEST = 0.6, 0.98
"""Of what is carried over from one trajectory to the next: less needs no stretching, and more is too much at once, as
it may be chance."""

Directions = Float[np.ndarray, "size directions"]


@dataclass(frozen=True)
class Stretched:
    """Coordinates y of other coordinates x = y + V (s - 1) V'y, with V's columns orthonormal."""

    inner: "Frame | Stretched"
    directions: Directions
    scales: Float[np.ndarray, " directions"]

    def enter(self, u: np.ndarray) -> np.ndarray:
        return self._by(self.inner.enter(u), 1 / self.scales)

    def leave(self, y: np.ndarray) -> np.ndarray:
        return self.inner.leave(self._by(y, self.scales))

    def along(self, gradients: np.ndarray) -> np.ndarray:
        """Gradients in u as gradients in y."""
        return self._by(self.inner.along(gradients), self.scales)

    def _by(self, points: np.ndarray, scales: np.ndarray) -> np.ndarray:
        return points + ((points @ self.directions) * (scales - 1)) @ self.directions.T


def stretched(frame: Frame | Stretched, path: Path, coordinates: Coordinates, turn: float) -> Stretched | None:
    """Coordinates for the next chains, by where trajectories of length ``turn`` went; None if none was slow.

    Along a direction in which the posterior has the sd s, cos(turn / s) is carried over.
    """
    enough = path[1:, :, 0].size // TRAJECTORIES_PER_DIRECTION
    candidates = of_latents(frame, coordinates)[:, :enough]
    if path.shape[-1] <= enough:
        candidates = np.concatenate([candidates, found(path)], axis=1)[:, :enough]
    basis = np.linalg.qr(candidates)[0]
    along = (path - path.mean(axis=(0, 1))) @ basis
    before, after = along[:-1].reshape(-1, basis.shape[1]), along[1:].reshape(-1, basis.shape[1])
    carried = np.linalg.lstsq(before, after, rcond=None)[0]
    shares, axes = np.linalg.eigh((carried + carried.T) / 2)
    slow = shares > SLOW
    if not slow.any():
        return None
    return Stretched(frame, basis @ axes[:, slow], turn / np.arccos(np.minimum(shares[slow], SLOWEST)))


def of_latents(frame: Frame | Stretched, coordinates: Coordinates) -> Directions:
    """Every entry of small latents, and of every other the shift of all its entries together."""
    size, small, columns = coordinates.size, 0, []
    for entry in sorted(coordinates.entries, key=lambda one: one.stop - one.start):
        count = entry.stop - entry.start
        small += count
        if count > 1:
            columns.append(np.isin(np.arange(size), np.arange(entry.start, entry.stop)).astype(float)[:, None])
        if small <= MOST_SMALL:
            columns.append(np.eye(size)[:, entry.start : entry.stop])
    return unit(frame, np.concatenate(columns, axis=1))


def unit(frame: Frame | Stretched, directions: Directions) -> Directions:
    """Directions in u as directions of length one in x, or zero where q is so wide that rounding leaves nothing."""
    inside = (frame.enter(directions.T) - frame.enter(np.zeros((1, len(directions))))).T
    length = np.linalg.norm(inside, axis=0)
    return inside / np.where(length > 0, length, 1.0)


def found(path: Path) -> Directions:
    """Orthogonal directions along which one end and the next vary together most."""
    size = path.shape[-1]
    if size <= MOST_FOUND:
        return np.eye(size)
    centred = path - path.mean(axis=(0, 1))
    before, after = centred[:-1].reshape(-1, size), centred[1:].reshape(-1, size)

    def together(direction: np.ndarray) -> np.ndarray:
        return before.T @ (after @ direction) + after.T @ (before @ direction)

    operator = LinearOperator((size, size), matvec=together, dtype=np.float64)
    start = np.random.default_rng(size).normal(size=size)
    return eigsh(operator, k=min(MOST_FOUND, size - 1), which="LA", v0=start, tol=1e-2)[1]
