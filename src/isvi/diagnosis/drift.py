"""What short chains say about every entry: how far it drifted from q, and how much of the way that was."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

TRAJECTORIES = 8
"""Of every chain. Where q is right each one forgets the last; the first ones are for where it is not."""
JUDGED = 6
"""Of these, the last ones, at whose ends entries are judged."""
LARGEST_MEMORY = 0.99
"""Of a trajectory: chains that do not move at all have gone none of their way."""
ROUND_OFF = 1e-13
"""An entry whose sd is less than this part of its mean is constant: means are exact give or take so much."""
FEW = 2
"""Entries: of so few every change counts, as ends that creep unseen are worse than evidence that is missed."""
Path = Float[np.ndarray, "trajectories chains entries"]
"""Where every trajectory of every chain ended."""
Before = Float[np.ndarray, "earlier chains entries"]
"""The same, of the turn before."""
PerEntry = Float[np.ndarray, " entries"]


@dataclass(frozen=True)
class Drift:
    """Of every entry's mean and sd, with their standard errors.

    What a chain still remembers of its start it has not drifted yet: if its ends correlate by r with their starts, the
    mean has gone 1 - r of its way, and is taken to end where that leads.

    Attributes:
        mean: of the posterior minus of q, in the posterior's sds.
        log_sd: the logarithm of the posterior's sd over q's.
        noise: the larger of their standard errors.
        memory: the part of the way that is still to go, of mean or sd, whichever is more.
        left: how far off the ends of the chains themselves still are: the larger of mean and log sd.
        drawn_noise: the larger of the standard errors of their own mean and log sd.
    """

    mean: PerEntry
    log_sd: PerEntry
    noise: PerEntry
    memory: PerEntry
    left: PerEntry
    drawn_noise: PerEntry

    @classmethod
    def of(cls, path: Path, twins: Path, log_joint: Float[np.ndarray, "trajectories chains"]) -> "Drift":
        """``twins`` is the path of chains that stay with q."""
        ends, twins = path[-JUDGED:], twins[-JUDGED:]
        mean, sd = ends.mean(axis=(0, 1)), ends.std(axis=(0, 1))
        own_mean, own_sd = twins.mean(axis=(0, 1)), twins.std(axis=(0, 1))
        varies = (sd > ROUND_OFF * np.abs(mean)) & (own_sd > ROUND_OFF * np.abs(own_mean))
        sd, own_sd = np.where(varies, sd, 1.0), np.where(varies, own_sd, 1.0)
        kept = still_to_go(_memory(path))
        spread = np.maximum(_memory(np.abs(path - mean)), _memory(log_joint[..., None]))
        kept_squares = still_to_go(spread)
        towards, stretch = (ends - mean) / sd, 0.5 * (((ends - mean) / sd) ** 2 - 1)
        own_stretch = 0.5 * (((twins - own_mean) / own_sd) ** 2 - 1)
        shift_noise = _standard_error((ends - twins) / sd) / (1 - kept)
        stretch_noise = _standard_error(stretch - own_stretch) / (1 - kept_squares)
        shift = np.where(varies, (mean - own_mean) / sd / (1 - kept), 0.0)
        log_sd = np.where(varies, np.log(sd / own_sd) / (1 - kept_squares), 0.0)
        return cls(
            mean=shift,
            log_sd=log_sd,
            noise=np.where(varies, np.maximum(shift_noise, stretch_noise), 0.0),
            memory=np.where(varies, np.maximum(kept, kept_squares), 0.0),
            left=np.maximum(np.abs(shift) * kept, np.abs(log_sd) * kept_squares),
            drawn_noise=np.maximum(_standard_error(towards), _standard_error(stretch)),
        )


@dataclass(frozen=True)
class Rest:
    """Whether the ends of chains are where those of the turn before were.

    What is carried over from one trajectory to the next says how fast the bulk of the draws moves. Along the bends of a
    banana a few draws creep outwards long after that; that is seen only in that they do.

    Attributes:
        left: how far off the ends may still be, of mean or log sd: twice what has changed in this turn. Where there are
            many entries, what the largest change is by chance is taken off, so far as it is more than with ``FEW``.
        noise: the larger of the standard errors of the ends' own mean and log sd.
    """

    left: PerEntry
    noise: PerEntry

    @classmethod
    def of(cls, before: Before, ends: Path) -> "Rest":
        old, new = _Pulls.of(before), _Pulls.of(ends)
        by_chance = max(0.0, np.sqrt(2 * np.log(ends.shape[-1])) - np.sqrt(2 * np.log(FEW)))
        moved = [
            np.abs(new.mean - old.mean) / new.sd - by_chance * _standard_error(new.towards, old.towards),
            np.abs(np.log(new.sd / old.sd)) - by_chance * _standard_error(new.stretch, old.stretch),
        ]
        noise = np.maximum(_standard_error(new.towards), _standard_error(new.stretch))
        return cls(2 * np.maximum(np.max(moved, axis=0), 0.0), noise)


@dataclass(frozen=True)
class _Pulls:
    """Mean and sd of every entry, and how every end pulls at the mean, in sds, and at the logarithm of the sd."""

    mean: PerEntry
    sd: PerEntry
    towards: Path
    stretch: Path

    @classmethod
    def of(cls, ends: Path) -> "_Pulls":
        mean, sd = ends.mean(axis=(0, 1)), ends.std(axis=(0, 1))
        sd = np.where(sd > 0, sd, 1.0)
        towards = (ends - mean) / sd
        return cls(mean, sd, towards, 0.5 * (towards**2 - 1))


def carried_over(path: Path) -> PerEntry:
    """By how much the end of a trajectory depends on the end of the one before: cos(T / s) for a Gaussian of sd s and
    trajectories of time T, whether or not the chains have spread that far. (The correlation would be less where they
    are still spreading.)"""
    centred = path - path.mean(axis=(0, 1))
    variance = (centred[:-1] ** 2).sum(axis=(0, 1))
    return (centred[1:] * centred[:-1]).sum(axis=(0, 1)) / np.where(variance > 0, variance, 1.0)


def still_to_go(memory: PerEntry) -> PerEntry:
    """Of the way from the start, where the judged trajectories ended, on average, with so much memory of each."""
    return np.mean([memory**number for number in range(TRAJECTORIES - JUDGED + 1, TRAJECTORIES + 1)], axis=0)


def _memory(path: Path) -> PerEntry:
    """What is carried over from one trajectory to the next, and two standard errors."""
    pairs = path[1:, :, 0].size
    return np.minimum(np.abs(carried_over(path)) + 2 / np.sqrt(pairs), LARGEST_MEMORY)


def _standard_error(pulls: Path, before: Before | None = None) -> PerEntry:
    """Of the mean of what every end adds, chain by chain, as the ends of one chain are not independent; or of its
    change since the same chains were before."""
    per_chain = pulls.mean(axis=0) - (0.0 if before is None else before.mean(axis=0))
    return per_chain.std(axis=0, ddof=1) / np.sqrt(len(per_chain))
