"""A Gaussian that has settled is bent, where that is better: a warp first, and where that is not enough a nested q."""

from collections.abc import Callable
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np

from isvi.fitting.afterwards.bent import Bent
from isvi.fitting.afterwards.nest import nest
from isvi.fitting.afterwards.warp import warp
from isvi.fitting.outcome import Outcome
from isvi.fitting.setup import Setup

ENOUGH = 0.9
"""Where this share of a warp's draws is effective, and nothing is in doubt, nothing else is tried."""
MUCH_BETTER = 1.5
"""So many times the share of effective draws, and the closer q is kept, whatever is in doubt about it."""


def bend(setup: Setup, outcome: Outcome, stopped: Callable[[], str | None]) -> Bent:
    """What came of it. All that is random follows from the run's key."""
    warped = warp(setup, outcome, stopped) if setup.warp is not None else Bent("")
    enough = warped.kept and warped.effective > ENOUGH and warped.in_doubt is None
    if setup.nested is None or enough or warped.error is not None or stopped():
        return warped
    nested = nest(setup, outcome, warped.gradients, stopped)
    gradients = warped.gradients + nested.gradients
    if not nested.kept or (warped.kept and not _better(nested, warped)):
        words = "; ".join(one.words for one in (warped, nested) if one.gradients)
        return replace(warped, words=words, gradients=gradients)
    dtype = jnp.result_type(*jax.tree.leaves(outcome.loop.state.params))
    params = jax.tree.map(lambda leaf: jnp.asarray(np.asarray(leaf), dtype), nested.params)
    return replace(nested, gradients=gradients, params=params)


def _better(one: Bent, other: Bent) -> bool:
    """By their effective draws, and by what is in doubt only where these are about as many: of a warp that is whether
    another would be better, of a nested q whether it is the posterior, so that a bad warp may be free of doubt."""
    apart = max(one.effective, other.effective) > MUCH_BETTER * min(one.effective, other.effective)
    if not apart and (one.in_doubt is None) != (other.in_doubt is None):
        return one.in_doubt is None
    return one.effective > other.effective
