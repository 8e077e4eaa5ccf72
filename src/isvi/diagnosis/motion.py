"""Short chains as evidence: whether they tell anything, and what."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from isvi.diagnosis.chains import Chains, run_chains
from isvi.diagnosis.drift import TRAJECTORIES, Drift, Path, Rest
from isvi.diagnosis.entries import SD_OFF, Entries, PerEntry, flatten, number, off
from isvi.diagnosis.together import hidden

if TYPE_CHECKING:
    from isvi.results.fit import Fit

PASSES_PER_DRAW = 2
"""Passes over the data, with gradients, that chains take for each that draws took: fewer would be too few to be sure of
every entry where q is right but not exact."""
MOST_MEMORY = 0.5
"""The largest part of its way that a chain may still have to go for where it leads to be known."""
FAST = 0.2
"""A part of its way that is no longer worth other coordinates: what is still to go adds to what is uncertain."""
MOST_HIDDEN = 0.1
"""Of a mean, in sds, or of the logarithm of an sd."""
SURELY = -2.0
"""Standard errors that what is surely off can bear."""
LEAST_ACCEPTANCE = 0.4
"""The share of trajectories that are taken: fewer, and the chains stand still."""


@dataclass(frozen=True)
class Motion:
    """Where chains went that began at draws of q and move as the posterior has it.

    Attributes:
        entries: how far q is off, as the chains see it; ``trusted`` if they tell.
        draws: where the chains went, in the coordinates of the approximation.
        mended: whether these have the posterior's means and sds, as far as is promised.
        promising: whether they should, by what the chains remember of their start; they have to be at rest too.
        arrived: whether they should, were there only enough of them.
        chains: how many.
        trajectories: of each.
        turns: how often they went on after these, as their ends are to stand for the posterior.
        acceptance: the share of these that were taken.
        memory: the largest part of its way that an entry still had to go.
        slowest: which entry that is.
        hidden: by how much a mean, in sds, or the logarithm of an sd may be further off than that shows, where many
            latents move together and slowly.
        passes: passes over the data, with gradients.
    """

    entries: Entries
    draws: Float[np.ndarray, "draws dim"]
    mended: bool
    promising: bool
    arrived: bool
    chains: int
    trajectories: int
    turns: int
    acceptance: float
    memory: float
    slowest: str
    hidden: float
    passes: int

    @property
    def tells(self) -> bool:
        return self.entries.trusted

    @property
    def fast(self) -> bool:
        """Whether chains in other coordinates would not be much faster."""
        return self.tells and self.memory <= FAST and self.hidden <= FAST * MOST_HIDDEN / MOST_MEMORY

    @property
    def settled(self) -> bool:
        """Whether more chains would not tell more."""
        if not self.tells:
            return True
        if self.wrong is None:
            return self.sure
        return self.promising or not self.arrived

    @property
    def resting(self) -> bool:
        """Whether nothing is gained by going on."""
        return self.mended or not self.promising or self.wrong is None

    @property
    def wrong(self) -> str | None:
        """What is off by more than is promised: surely, or, where the chains are enough to be sure, perhaps."""
        return off(self.entries) if self.sure else off(self.entries, errors=SURELY)

    @property
    def sure(self) -> bool:
        """Whether not one of all entries is off by more than is promised only by chance."""
        return bool(self.entries.error_noise.max() <= self.entries.largest_noise)

    def pick(self, num_samples: int, seed: int) -> Float[np.ndarray, "samples dim"]:
        """So many of the draws, each as often as any other, rounded up or down, in random order."""
        order = np.random.default_rng(seed).permutation(len(self.draws))
        return self.draws[np.resize(order, num_samples)]

    def __str__(self) -> str:
        return (
            f"{self.chains} of {self.trajectories} trajectories each, {self.acceptance:.0%} taken, "
            f"{1 - self.memory:.0%} of the way gone by the slowest entry, {self.slowest}; "
            f"up to {self.hidden:.2f} hidden in directions of many entries"
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, for JSON."""
        names = ("chains", "trajectories", "turns", "acceptance", "memory", "slowest", "hidden", "passes")
        values = {name: getattr(self, name) for name in names}
        return {name: number(value) if isinstance(value, float) else value for name, value in values.items()}


def watch(fit: "Fit", draws: int, seed: int) -> Motion | None:
    """Chains that cost about as much as may be spent where so many draws were weighed; None where none can begin."""
    ran = run_chains(
        fit,
        PASSES_PER_DRAW * draws,
        seed,
        fast=lambda ran: _seen(fit, ran).fast,
        enough=lambda ran: _seen(fit, ran).settled,
        resting=lambda ran: _seen(fit, ran).resting,
    )
    return None if ran is None else _seen(fit, ran)


def _seen(fit: "Fit", ran: Chains) -> Motion:
    names, path = _reported(fit, ran, ran.path)
    _, twins = _reported(fit, ran, ran.twins)
    drift = Drift.of(path, twins, ran.log_joint)
    slowest = int(np.argmax(drift.memory))
    memory = float(drift.memory[slowest])
    finite = bool(np.isfinite(path).all() and np.isfinite(twins).all())
    unseen = hidden(ran.path, ran.twins, ran.space.frame, ran.space.unconstrained.plain)
    tells = finite and memory <= MOST_MEMORY and unseen <= MOST_HIDDEN and ran.acceptance >= LEAST_ACCEPTANCE
    unknown = np.full(len(names), np.nan)
    entries = Entries(names, drift.mean, np.exp(drift.log_sd), unknown, drift.noise, drift.drawn_noise, tells)
    promising = bool(tells and _within(entries, drift.left, drift.drawn_noise))
    rest = Rest.of(*(_reported(fit, ran, ends)[1] for ends in ran.ends[-2:])) if ran.further else None
    return Motion(
        entries=entries,
        draws=ran.space.leave(ran.ends[-1]),
        mended=promising and rest is not None and _within(entries, rest.left, rest.noise),
        promising=promising,
        arrived=bool(drift.left.max() <= np.log(SD_OFF)),
        chains=ran.count,
        trajectories=TRAJECTORIES,
        turns=len(ran.further),
        acceptance=ran.acceptance,
        memory=memory,
        slowest=names[slowest],
        hidden=unseen,
        passes=ran.passes,
    )


def _within(entries: Entries, left: PerEntry, noise: PerEntry) -> bool:
    """Whether draws with so far to go, and so much noise, are as is promised of resampled ones."""
    return bool(noise.max() <= entries.largest_noise and (left + 2 * noise).max() <= np.log(SD_OFF))


def _reported(fit: "Fit", ran: Chains, path: Path) -> tuple[list[str], Path]:
    """Every entry as the user sees it."""
    names, flat = flatten(fit._judged(jnp.asarray(ran.space.leave(path))))
    return names, flat.reshape(*path.shape[:2], -1)
