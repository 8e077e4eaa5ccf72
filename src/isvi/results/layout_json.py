"""Latents and approximations as JSON, and back, without running anybody's code: only kinds that are known here."""

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
from isvi.families.student_t import StudentTFactors

CONSTRAINTS: dict[str, type[Constraint]] = {
    kind.__name__: kind
    for kind in vars(constraints).values()
    if isinstance(kind, type) and issubclass(kind, Constraint)
}
FACTORS: dict[str, type[Factors]] = {
    kind.__name__: kind
    for kind in (
        *(BetaFactors, DiagonalGaussian, DirichletFactors, GammaFactors, GaussianBlocks),
        *(LogNormalFactors, LowRankGaussian, StudentTFactors),
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


def approximation_from_json(found: dict[str, Any]) -> Approximation:
    """The approximation that :func:`approximation_as_json` wrote."""
    latents = {one["name"]: _latent(one) for one in found["latents"]}
    constrained = frozenset(one["name"] for one in found["latents"] if one["constrained"])
    pieces = [_known(FACTORS, one["kind"])(**{k: v for k, v in one.items() if k != "kind"}) for one in found["factors"]]
    return Approximation(lay_out(latents, list(latents), constrained), tuple(pieces))


def _latent(found: dict[str, Any]) -> Latent:
    constraint = _constraint_from_json(found["constraint"])
    return Latent(tuple(found["shape"]), constraint, biject_to(constraint))


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
    return kind.tree_unflatten((tuple(parameters), found["constants"]), tuple(parameters.values()))


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
