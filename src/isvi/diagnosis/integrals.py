"""Are the integrals over local latents right? Each is taken again with more nodes, and the two are compared.

The importance weights of a diagnosis cannot tell: they use the integrals as they are. What counts is what their errors
do to the global latents. With g the difference of the log likelihood's gradients, of many nodes and of few, and S the
covariance of q, the posterior's mean is off by about S g.
"""

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from isvi.data.packs import Pack, Packs
from isvi.diagnosis.verdict import Verdict
from isvi.model.local import Marginal
from isvi.model.local.marginal import as_pack
from isvi.results.evaluation import in_float64, in_one_precision

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
    """What more nodes say about the integrals, at the mean of q.

    Attributes:
        groups: how many groups (or rows with latents of their own).
        off: in how many the log of the integral differs by more than ``NATS_OFF`` nats.
        lost: in how many of these no mode was found.
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
        return told


def check_integrals(fit: "Fit") -> Integrals | None:
    """Two passes over the data, in double precision; None for a model without local latents."""
    marginal = fit.model.log_likelihood
    if not isinstance(marginal, Marginal):
        return None
    finer = marginal.with_rule(marginal.rule.finer())
    draws = fit.approximation.draw(jax.random.key(0), fit.params, DRAWS_FOR_COVARIANCE)
    with jax.enable_x64(True):
        location = jnp.asarray(fit.approximation.location(in_float64(fit.params)))
        gradient, off, lost, names = in_one_precision(lambda: _over_data(fit, marginal, finer, location))
    covariance = np.atleast_2d(np.cov(np.asarray(draws, np.float64), rowvar=False))
    shift = np.abs(covariance @ gradient) / np.sqrt(np.diagonal(covariance))
    shift = np.where(np.isfinite(shift), shift, np.inf)
    entry = int(np.argmax(shift))
    error = np.where(lost | ~np.isfinite(off), np.inf, off)
    worst = np.argsort(-error)[:NAMED]
    bad = [str(names[place]) for place in worst if error[place] > NATS_OFF]
    return Integrals(
        groups=len(off),
        off=int((error > NATS_OFF).sum()),
        lost=int(lost.sum()),
        worst=tuple(bad),
        largest=float(np.nan_to_num(error.max(), nan=np.inf)),
        shift=float(shift[entry]),
        entry=fit.approximation.coordinates.labels()[entry],
        nodes=marginal.rule.count,
        more=finer.rule.count,
    )


def _over_data(fit: "Fit", marginal: Marginal, finer: Marginal, z: Array) -> tuple[np.ndarray, ...]:
    """The difference of the gradients of all groups; and for each group that of the logs of its integrals, whether no
    mode was found, and its name."""
    coordinates = fit.approximation.coordinates

    def compared(pack: Pack) -> tuple[Array, Array, Array]:
        def difference(z: Array) -> tuple[Array, tuple[Array, Array]]:
            values, _ = coordinates.decode(z)
            modes = marginal.modes(jax.lax.stop_gradient(values), pack)
            few, many = (one.around(modes, values, pack).log_integral for one in (marginal, finer))
            off = jnp.where(pack.number >= 0, many - few, 0.0)
            return off.sum(), (jnp.abs(off), ~modes.found)

        gradient, (off, lost) = jax.grad(difference, has_aux=True)(z)
        return gradient, off, lost

    on_full = jax.jit(partial(jax.lax.map, lambda batch: compared(as_pack(_doubled(batch)))))
    total, offs, losts, names = np.zeros(z.shape), [], [], []
    first = 0
    for part in fit.data().parts():
        batches = [part.full] if part.rest is None else [part.full, jax.tree.map(lambda a: a[None], part.rest)]
        for stacked in batches:
            gradient, off, lost = jax.device_get(on_full(stacked))
            there, labels = _named(stacked, off.shape, fit.data(), first)
            first += off.shape[0]
            total += gradient.sum(axis=0)
            offs.append(off[there])
            losts.append(lost[there])
            names.append(labels[there])
    return total, np.concatenate(offs), np.concatenate(losts), np.concatenate(names)


def _doubled(batch: Any) -> Any:
    return jax.tree.map(lambda a: a.astype(jnp.float64) if jnp.issubdtype(a.dtype, jnp.floating) else a, batch)


def _named(stacked: Any, shape: tuple[int, ...], data: Any, first: int) -> tuple[np.ndarray, np.ndarray]:
    """Which places hold a group, and what it is called."""
    if isinstance(data, Packs) and isinstance(stacked, Pack):
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
