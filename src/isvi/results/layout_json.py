"""Latents and approximations as JSON, and back, without running anybody's code: only kinds that are known here."""

from math import isfinite, prod
from typing import Any

import jax.numpy as jnp
import numpy as np
from numpyro.distributions import biject_to, constraints
from numpyro.distributions.constraints import Constraint

from isvi.core.coordinates import lay_out
from isvi.core.errors import CheckpointError, ConfigurationError, require
from isvi.core.latents import Latent
from isvi.families.approximation import Approximation
from isvi.families.base import Factors
from isvi.families.block import GaussianBlocks
from isvi.families.dirichlet import BetaFactors, DirichletFactors
from isvi.families.gamma import GammaFactors
from isvi.families.gaussian import DiagonalGaussian
from isvi.families.log_normal import LogNormalFactors
from isvi.families.low_rank import LowRankGaussian
from isvi.families.nested import NestedGaussian
from isvi.families.student_t import StudentTFactors
from isvi.families.warped import WarpedGaussian

CONSTRAINTS: dict[str, type[Constraint]] = {
    kind.__name__: kind
    for kind in vars(constraints).values()
    if isinstance(kind, type) and issubclass(kind, Constraint)
}
SIZES = ("count", "size", "rank")
"""Options of factors that are numbers of entries; others are bounds, or degrees of freedom."""
ENTRIES = "drivers"
"""An option that is a list of entries."""
FACTORS: dict[str, type[Factors]] = {
    kind.__name__: kind
    for kind in (
        *(BetaFactors, DiagonalGaussian, DirichletFactors, GammaFactors, GaussianBlocks),
        *(LogNormalFactors, LowRankGaussian, NestedGaussian, StudentTFactors, WarpedGaussian),
    )
}


def approximation_as_json(approximation: Approximation) -> dict[str, Any]:
    """The latents in the order in which they are laid out, and the factors over them."""
    return {
        "latents": [
            {
                "name": entry.name,
                "shape": list(entry.latent.shape),
                "constraint": _constraint_as_json(entry.name, entry.latent.constraint),
                "constrained": entry.constrained,
            }
            for entry in approximation.coordinates.entries
        ],
        "factors": [{"kind": _factors_kind(piece), **vars(piece)} for piece in approximation.pieces],
    }


def approximation_from_json(found: dict[str, Any], most: int) -> Approximation:
    """The approximation that :func:`approximation_as_json` wrote; an error if it has more than ``most`` entries."""
    latents = {one["name"]: _latent(one, most) for one in found["latents"]}
    require(
        len(latents) == len(found["latents"]) > 0 and all(isinstance(name, str) for name in latents),
        CheckpointError,
        "its latents must have names, each of them one of its own",
    )
    constrained = frozenset(one["name"] for one in found["latents"] if one["constrained"])
    coordinates = lay_out(latents, list(latents), constrained)
    require(0 < coordinates.size <= most, CheckpointError, f"its latents have {coordinates.size:,} entries")
    pieces = tuple(_factors(one, coordinates.size) for one in found["factors"])
    require(
        sum(piece.dim for piece in pieces) == coordinates.size,
        CheckpointError,
        f"its factors are not over the {coordinates.size:,} entries of its latents",
    )
    return Approximation(coordinates, pieces)


def _latent(found: dict[str, Any], most: int) -> Latent:
    constraint = _constraint_from_json(found["constraint"])
    shape = found["shape"]
    require(
        isinstance(shape, list) and all(type(length) is int and length > 0 for length in shape) and prod(shape) <= most,
        CheckpointError,
        f"the latent {found['name']!r:.100} has the shape {shape!r:.100}",
    )
    return Latent(tuple(shape), constraint, biject_to(constraint))


def _factors(found: dict[str, Any], size: int) -> Factors:
    kind = _known(FACTORS, found["kind"])
    options = {name: value for name, value in found.items() if name != "kind"}
    if ENTRIES in options:
        options[ENTRIES] = _entries(options[ENTRIES], size)
    for name, value in options.items():
        fits = type(value) is int and 0 < value <= size if name in SIZES else value is None or _is_finite(value)
        require(fits or name == ENTRIES, CheckpointError, f"{found['kind']} has {name} {value!r:.100}")
    return kind(**options)


def _entries(found: Any, size: int) -> tuple[int, ...]:
    fits = isinstance(found, list) and all(type(one) is int and 0 <= one < size for one in found)
    require(fits and len(set(found)) == len(found) > 0, CheckpointError, f"its {ENTRIES} are {found!r:.100}")
    return tuple(found)


def _is_finite(value: Any) -> bool:
    return type(value) in (int, float) and isfinite(value)


def _constraint_as_json(name: str, constraint: Constraint) -> dict[str, Any]:
    kind = type(constraint).__name__
    require(
        CONSTRAINTS.get(kind) is type(constraint),
        ConfigurationError,
        f"latent {name!r} has the constraint {constraint}, which is not one of NumPyro's own and cannot be saved.",
    )
    values, (names, constants) = constraint.tree_flatten()
    parameters = {
        label: _constraint_as_json(name, value) if isinstance(value, Constraint) else np.asarray(value).tolist()
        for label, value in zip(names, values, strict=True)
    }
    return {"kind": kind, "parameters": parameters, "constants": constants}


def _constraint_from_json(found: dict[str, Any]) -> Constraint:
    kind = _known(CONSTRAINTS, found["kind"])
    parameters = {
        label: _constraint_from_json(value) if isinstance(value, dict) else _number(value)
        for label, value in found["parameters"].items()
    }
    made = kind.tree_unflatten((tuple(parameters), found["constants"]), tuple(parameters.values()))
    require(
        tuple(made.tree_flatten()[1][0]) == tuple(parameters) and made.tree_flatten()[1][1] == found["constants"],
        CheckpointError,
        f"the constraint {found['kind']} does not take {', '.join(parameters)}",
    )
    return made


def _number(value: Any) -> Any:
    return jnp.asarray(value) if isinstance(value, list) else value


def _factors_kind(piece: Factors) -> str:
    kind = type(piece).__name__
    require(
        FACTORS.get(kind) is type(piece),
        ConfigurationError,
        f"an approximation with {kind}, a kind of your own, cannot be saved; save fit.params and fit.history yourself.",
    )
    return kind


def _known(kinds: dict[str, Any], name: Any) -> Any:
    require(
        isinstance(name, str) and name in kinds,
        CheckpointError,
        f"the file names a kind {name!r} that this version of isvi does not know: {', '.join(sorted(kinds))}.",
    )
    return kinds[name]
