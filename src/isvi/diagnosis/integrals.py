"""Are the integrals over local latents right? Each is taken again, with more nodes and with points elsewhere, and
compared.

The importance weights of a diagnosis cannot tell: they use the integrals as they are. What counts is what their errors
do to the global latents. With g the difference of the log likelihood's gradients, of many nodes and of few, and S the
covariance of q, the posterior's mean is off by about S g.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from isvi.core.compiling import compiled_once, effort
from isvi.data.groups.grouped_files import GroupedStream
from isvi.data.groups.packs import Pack, Packs
from isvi.data.opening import Data
from isvi.diagnosis.verdict import Verdict
from isvi.model.local import Marginal
from isvi.model.local.comparison import Comparison, compare
from isvi.model.local.marginal import as_pack
from isvi.results.weights.evaluation import in_float64, in_one_precision

if TYPE_CHECKING:
    from isvi.results.fit import Fit

DRAWS_FOR_COVARIANCE = 4000
SHIFT_OFF, SHIFT_WRONG = 0.1, 0.5
"""Posterior sds by which the integrals' errors may move a mean: beyond the first it is said, and the fit is not called
good; beyond the second it is poor."""
NATS_OFF = 0.02
"""By which the log of a group's integral may be wrong and the group still not be counted."""
NATS_WRONG = 0.1
"""By which the log of no group's integral may be wrong: the group's own latents are then not known, and nodes that far
from where the mass is may be wrong by any amount."""
NAMED = 3
PROPER = "a proper prior for the local latents, and a look at the rows of these groups"


@dataclass(frozen=True)
class Integrals:
    """What more nodes, and points elsewhere, say about the integrals, at the mean of q.

    Attributes:
        groups: how many groups (or rows with latents of their own).
        off: in how many the log of the integral differs by more than ``NATS_OFF`` nats.
        lost: in how many of these no mode was found.
        elsewhere: in how many there is mass that nodes around the mode do not reach.
        worst: the worst of these, by name.
        largest: by how many nats the worst one differs; infinite where no mode was found.
        shift: by how many posterior sds the errors of all groups together move a mean, at most.
        entry: whose mean that is.
        nodes: nodes of the integral, as :class:`isvi.Model` counts them.
        more: nodes that it was compared with.
    """

    groups: int
    off: int
    lost: int
    elsewhere: int
    worst: tuple[str, ...]
    largest: float
    shift: float
    entry: str
    nodes: int
    more: int

    def __str__(self) -> str:
        told = f"{self.entry} moved by {self.shift:.3f} sds with {self.more} nodes in place of {self.nodes}"
        if self.off or self.lost:
            told += f"; off in {self.off:,} of {self.groups:,} groups, such as {', '.join(self.worst)}"
        if self.elsewhere:
            told += f"; in {self.elsewhere:,} there is mass away from the mode"
        return told


def check_integrals(fit: "Fit", groups: int | None = None) -> Integrals | None:
    """A pass over the data in double precision; None for a model without local latents.

    Args:
        groups: look at about so many groups only, in the precision of the fit. Mini-batches are fair samples of them.
    """
    marginal = fit.model.log_likelihood
    if not isinstance(marginal, Marginal):
        return None
    draws = compiled_once(fit.approximation.draw, static_argnums=2)(jax.random.key(0), fit.params, DRAWS_FOR_COVARIANCE)
    if groups is None:
        with jax.enable_x64(True):
            location = jnp.asarray(fit.approximation.location(in_float64(fit.params)))
            gradient, off, lost, elsewhere, names = in_one_precision(lambda: _over_data(fit, marginal, location, None))
    else:
        location = jnp.asarray(fit.approximation.location(fit.params))
        gradient, off, lost, elsewhere, names = _over_data(fit, marginal, location, groups)
    covariance = np.atleast_2d(np.cov(np.asarray(draws, np.float64), rowvar=False))
    shift = np.abs(covariance @ gradient) / np.sqrt(np.diagonal(covariance))
    shift = np.where(np.isfinite(shift), shift, np.inf)
    entry = int(np.argmax(shift))
    error = np.where(lost | ~np.isfinite(off), np.inf, np.abs(off))
    worst = np.argsort(-error)[:NAMED]
    return Integrals(
        groups=len(off),
        off=int((error > NATS_OFF).sum()),
        lost=int(lost.sum()),
        elsewhere=int(elsewhere.sum()),
        worst=tuple(str(names[place]) for place in worst if error[place] > NATS_OFF),
        largest=float(np.nan_to_num(error.max(), nan=np.inf)),
        shift=float(shift[entry]),
        entry=fit.approximation.coordinates.labels()[entry],
        nodes=marginal.rule.count,
        more=marginal.rule.finer().count,
    )


def _over_data(fit: "Fit", marginal: Marginal, z: Array, groups: int | None) -> tuple[np.ndarray, ...]:
    """The difference of the gradients of all groups; and for each group what :class:`Comparison` says, and its name."""
    coordinates = fit.approximation.coordinates

    def compared(batch: Any) -> tuple[Array, Comparison]:
        pack = as_pack(_in_precision(batch, z.dtype))

        def difference(z: Array) -> tuple[Array, Comparison]:
            found = compare(marginal, coordinates.decode(z)[0], pack)
            return found.off.sum(), found

        return jax.grad(difference, has_aux=True)(z)

    options = None if groups is None else effort(0, at_most=False)
    on_full = jax.jit(partial(jax.lax.map, compared), compiler_options=options)
    total, found, seen, first = np.zeros(z.shape), [], 0, 0
    for stacked in _stacked(fit.data()):
        few = _first_few(stacked, groups, seen)
        gradient, comparison = jax.device_get(on_full(few))
        there, labels = _named(few, comparison.off.shape, fit.data(), first)
        first += len(there)
        seen += int(there.sum())
        total += gradient.sum(axis=0)
        found.append([column[there] for column in (*comparison, labels)])
        if groups is not None and seen >= groups:
            break
    off, lost, elsewhere, names = (np.concatenate(column) for column in zip(*found, strict=True))
    return total * fit.data().num_batches / first, off, lost, elsewhere, names


def _stacked(data: Data) -> Iterator[Any]:
    """Mini-batches with a leading axis, those of equal shape together."""
    for part in data.parts():
        yield part.full
        if part.rest is not None:
            yield jax.tree.map(lambda a: a[None], part.rest)


def _first_few(stacked: Any, groups: int | None, seen: int) -> Any:
    """As many mini-batches as are still needed."""
    if groups is None:
        return stacked
    numbers = stacked.number if isinstance(stacked, Pack) else jax.tree.leaves(stacked)[0]
    enough = -(-(groups - seen) // numbers.shape[1])
    return jax.tree.map(lambda a: a[:enough], stacked)


def _in_precision(batch: Any, dtype: Any) -> Any:
    return jax.tree.map(lambda a: a.astype(dtype) if jnp.issubdtype(a.dtype, jnp.floating) else a, batch)


def _named(stacked: Any, shape: tuple[int, ...], data: Any, first: int) -> tuple[np.ndarray, np.ndarray]:
    """Which places hold a group, and what it is called."""
    if isinstance(data, (Packs, GroupedStream)) and isinstance(stacked, Pack):
        numbers = np.asarray(stacked.number)
        return numbers >= 0, np.asarray(data.groups.labels)[np.maximum(numbers, 0)].astype(object)
    batch, row = np.indices(shape)
    names = [f"row {r} of mini-batch {b + first}" for b, r in zip(batch.ravel(), row.ravel(), strict=True)]
    return np.ones(shape, bool), np.array(names, object).reshape(shape)


def judge_integrals(
    found: Integrals | None, verdict: Verdict, reasons: list[str], advice: list[str]
) -> tuple[Verdict, list[str], list[str]]:
    """A verdict on the fit, made no better by what its integrals are."""
    if found is None or (found.shift <= SHIFT_OFF and found.largest <= NATS_WRONG):
        return verdict, reasons, advice
    named = f" (the worst: {', '.join(found.worst)})" if found.worst else ""
    more = f"more nodes: isvi.Model(..., nodes={2 * found.nodes - 1})"
    if found.lost:
        reason = f"in {found.lost:,} of {found.groups:,} groups the local latents have no mode that was found{named}"
        return "poor", [reason, *reasons], [PROPER, *advice]
    if found.shift <= SHIFT_OFF:
        reason = f"in {found.off:,} of {found.groups:,} groups the integral over local latents is not precise{named}"
        return "poor" if verdict == "poor" else "usable", [reason, *reasons], [more, PROPER, *advice]
    reason = (
        f"the integrals over local latents are not precise enough: with more nodes the mean of {found.entry} moves by "
        f"{found.shift:.2f} sds{named}"
    )
    worse: Verdict = "poor" if found.shift > SHIFT_WRONG or verdict == "poor" else "usable"
    return worse, [reason, *reasons], [more, *advice]
