"""Latent variables: a shape, a constraint, and the bijection that removes the constraint."""

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import jax
import numpy as np
from jaxtyping import Float
from numpyro.distributions import biject_to, constraints
from numpyro.distributions.constraints import Constraint
from numpyro.distributions.transforms import Transform

from isvi.core.errors import ModelError, require

ROUND_OFF = 1e-9
"""In double precision entries that are constant differ by less than this part of themselves, and others by more."""


@dataclass(frozen=True)
class Latent:
    """One named unknown of a model.

    The user writes densities of the *constrained* value; Gaussian approximations live in the
    *unconstrained* space on the other side of ``transform``.

    Attributes:
        shape: shape of the constrained value.
        constraint: the support, as a numpyro constraint.
        transform: bijection from the unconstrained space onto the support.
        flat_prior: set when ``log_prior`` deliberately does not mention this latent (an improper prior).
    """

    shape: tuple[int, ...]
    constraint: Constraint
    transform: Transform
    flat_prior: bool = False

    @property
    def unconstrained_shape(self) -> tuple[int, ...]:
        return tuple(self.transform.inverse_shape(self.shape))

    @property
    def size(self) -> int:
        """Number of constrained entries."""
        return int(np.prod(self.shape, dtype=int))

    @property
    def unconstrained_size(self) -> int:
        """Number of unconstrained entries: fewer than ``size`` for a simplex, for example."""
        return int(np.prod(self.unconstrained_shape, dtype=int))

    @cached_property
    def constants(self) -> Float[np.ndarray, "..."]:
        """The constrained entries that are the same whatever the unconstrained ones are, such as the diagonal of a
        correlation matrix; NaN for all others. What is computed for them at draws differs by round-off."""
        if self.size <= self.unconstrained_size:
            return np.full(self.shape, np.nan)
        with jax.enable_x64(True):
            points = np.random.default_rng(0).normal(size=(3, *self.unconstrained_shape))
            values = np.asarray(self.transform(jax.numpy.asarray(points)))
        same = np.ptp(values, axis=0) <= ROUND_OFF * np.abs(values).max(axis=0)
        return np.where(same, values[0], np.nan)


def constrained(constraint: Constraint, *shape: int, flat_prior: bool = False) -> Latent:
    """A latent whose support is any numpyro constraint.

    >>> from numpyro.distributions import constraints
    >>> constrained(constraints.corr_cholesky, 3, 3).unconstrained_shape
    (3,)
    """
    for length in shape:
        require(
            isinstance(length, (int, np.integer)) and length > 0,
            ModelError,
            f"A latent's shape must be positive whole numbers; got {shape}. Write real(500), not real((500,)).",
        )
    require(
        not constraint.is_discrete,
        ModelError,
        f"Latents must be continuous; got the discrete constraint {constraint}. "
        "Sum the discrete variable out of the log density (for a mixture: logsumexp over components).",
    )
    require(
        len(shape) >= constraint.event_dim,
        ModelError,
        f"A latent with constraint {constraint} needs at least {constraint.event_dim} dimension(s); got shape {shape}.",
    )
    try:
        transform = biject_to(constraint)
    except NotImplementedError:
        raise ModelError(
            f"numpyro knows no bijection onto {constraint}, so it cannot be a latent's constraint."
        ) from None
    return Latent(tuple(int(length) for length in shape), constraint, transform, flat_prior)


def real(*shape: int, flat_prior: bool = False) -> Latent:
    """An unconstrained latent: ``real()`` is a scalar, ``real(500)`` a vector.

    >>> real(500).size
    500
    """
    return constrained(constraints.real, *shape, flat_prior=flat_prior)


def positive(*shape: int, via: Literal["softplus", "exp"] = "softplus", flat_prior: bool = False) -> Latent:
    """A positive latent. ``via`` names the map from the unconstrained space: softplus grows linearly and
    is gentle for large values, exp makes the scale multiplicative."""
    supports = {"softplus": constraints.softplus_positive, "exp": constraints.positive}
    require(
        via in supports,
        ModelError,
        f"positive(via=...) takes 'softplus' or 'exp'; got {via!r}.",
    )
    return constrained(supports[via], *shape, flat_prior=flat_prior)


def interval(low: float, high: float, *shape: int, flat_prior: bool = False) -> Latent:
    """A latent between two finite bounds, by a scaled sigmoid."""
    require(
        bool(np.isfinite(low) and np.isfinite(high) and low < high),
        ModelError,
        f"interval(low, high) needs finite low < high; got low={low}, high={high}.",
    )
    return constrained(constraints.interval(low, high), *shape, flat_prior=flat_prior)


def unit_interval(*shape: int, flat_prior: bool = False) -> Latent:
    """A latent between 0 and 1."""
    return constrained(constraints.unit_interval, *shape, flat_prior=flat_prior)


def simplex(*shape: int, flat_prior: bool = False) -> Latent:
    """Positive entries that sum to one along the last axis, by stick-breaking.

    >>> simplex(4).unconstrained_shape
    (3,)
    """
    require(
        len(shape) > 0 and shape[-1] >= 2,
        ModelError,
        f"simplex(...) needs a last dimension of at least 2; got shape {shape}.",
    )
    return constrained(constraints.simplex, *shape, flat_prior=flat_prior)


def ordered(*shape: int, flat_prior: bool = False) -> Latent:
    """Entries that increase along the last axis."""
    return constrained(constraints.ordered_vector, *shape, flat_prior=flat_prior)
