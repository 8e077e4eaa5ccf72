"""What may still be hidden where many latents move together, and slowly.

If sixty latents share a direction along which q is thirty times too narrow, no chain that is short gets far along it,
and a sixtieth of what it has gone is all that any one latent shows: each looks as if it had forgotten its start. Such
directions are those along which the ends of successive trajectories agree most, and the shifts of all entries of a
latent together. How far there is to go follows from how far the chains have come, and how slowly.
"""

import numpy as np

from isvi.core.coordinates import Coordinates
from isvi.diagnosis.drift import JUDGED, Path, carried_over, still_to_go
from isvi.diagnosis.stretch import Directions, Stretched, found, of_latents
from isvi.results.weights.exploration import Frame

SURE = 2.0
"""Standard errors of a mean along a direction, below which it may be chance."""
LARGEST = 0.995
"""Of what is carried over from one trajectory to the next. Beyond it, how far there is to go cannot be told from how
far it was."""


def hidden(path: Path, twins: Path, frame: Frame | Stretched, coordinates: Coordinates) -> float:
    """By how much the logarithm of any sd, or any mean in sds, may be further off than the ends of the chains show.

    By chance some of the directions that are found always look slow: as much as the twins show, which are not slow at
    all, is taken off.
    """
    by_chance = _variance_to_come(found(twins), twins, frame).sum(axis=1).max()
    variance = _variance_to_come(found(path), path, frame).sum(axis=1).max() - by_chance
    shared = of_latents(frame, coordinates)
    alone = _variance_to_come(shared, path, frame).max()
    return max(0.5 * float(np.log1p(max(variance, alone))), _mean_to_come(shared, path, twins, frame))


def _variance_to_come(directions: Directions, path: Path, frame: Frame | Stretched) -> Directions:
    """The part of every entry's variance that chains have yet to gain along each direction, over what they have."""
    along = path @ directions
    left = still_to_go(np.clip(carried_over(along), 0.0, LARGEST) ** 2)
    to_come = along[-JUDGED:].var(axis=(0, 1)) * left / (1 - left)
    return _in_sds(directions, path, frame) ** 2 * to_come


def _mean_to_come(directions: Directions, path: Path, twins: Path, frame: Frame | Stretched) -> float:
    """The largest part of any entry's way that is still to go along one of them, in sds."""
    apart = ((path - twins)[-JUDGED:] @ directions).mean(axis=0)
    shift, noise = np.abs(apart.mean(axis=0)), apart.std(axis=0) / np.sqrt(len(apart))
    left = still_to_go(np.clip(carried_over(path @ directions), 0.0, LARGEST))
    to_come = np.where(shift > SURE * noise, shift * left / (1 - left), 0.0)
    return float((np.abs(_in_sds(directions, path, frame)) * to_come).max())


def _in_sds(directions: Directions, path: Path, frame: Frame | Stretched) -> Directions:
    """How much every latent moves along directions, in its sds at the ends of the chains."""
    origin = np.zeros((1, len(directions)))
    moved = (frame.leave(directions.T) - frame.leave(origin)).T
    return moved / frame.leave(path[-JUDGED:].reshape(-1, path.shape[-1])).std(axis=0)[:, None]
