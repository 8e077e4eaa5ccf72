"""Latents that belong to groups of rows, put behind the others."""

from collections.abc import Mapping

import jax.numpy as jnp
import numpy as np

from isvi.algorithms import AlgorithmOptions
from isvi.auto import Auto
from isvi.auto.dense import Dense
from isvi.core.latents import Latent
from isvi.data.opening import Data
from isvi.families import Approximation, Family, approximate
from isvi.model.checks import DRAWS, Trial
from isvi.model.grouping import Groups, candidates, independent
from isvi.model.model import Model

BATCHES = 3
"""Mini-batches that are asked."""
LEAST_DIM = 200
"""With fewer entries the pairs of a pass tell about all directions anyway, and records of two pairs cost twice."""


def groups_of(
    model: Model, dataset: Data, algorithm: AlgorithmOptions, approximation: Approximation, trial: Trial
) -> tuple[str, ...]:
    """Latents that belong to the same groups, where the method makes use of that."""
    if not isinstance(algorithm, Auto) or trial.operations_per_gradient == np.inf or model.log_likelihood is None:
        return ()
    if approximation.dim < LEAST_DIM or dataset.num_batches == 1:
        return ()
    if not isinstance(algorithm.on_full_rank(approximation, dataset.num_batches), Dense):
        return ()
    entries = {one.name: np.arange(one.start, one.stop).reshape(one.shape) for one in approximation.coordinates.entries}
    start = np.zeros(approximation.dim, jnp.result_type(float))

    def gradients(points: np.ndarray) -> list[np.ndarray]:
        first = dataset.first
        indices = [index for index in range(min(BATCHES, dataset.num_batches)) if bool(first.holds(jnp.int32(index)))]
        found = [trial.parts(jnp.asarray(points), first, index) for index in indices]
        return [part for one in found for _, part in one.values()]

    asked = (names for names in candidates(model.latents) if independent(names, entries, start, gradients, DRAWS))
    return next(asked, ())


def behind(
    latents: Mapping[str, Latent], names: tuple[str, ...], family: Family | Mapping[str, Family]
) -> tuple[Approximation, Groups | None]:
    """The approximation with these latents behind the others, and where their entries are then; None if the family
    has an order of its own."""
    ordered = {name: latents[name] for name in (*(one for one in latents if one not in names), *names)}
    approximation = approximate(family, ordered)
    if tuple(entry.name for entry in approximation.coordinates.entries) != tuple(ordered):
        return approximation, None
    number = latents[names[0]].shape[0]
    widths = tuple(latents[name].unconstrained_size // number for name in names)
    return approximation, Groups(approximation.dim - number * sum(widths), number, widths)
