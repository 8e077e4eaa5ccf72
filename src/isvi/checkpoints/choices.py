"""Choices as JSON, and back: only choices of the kinds listed here, so that reading runs nobody's code."""

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from isvi.algorithms import ISAG, ISGD, SAG, SGD, SRA, Adaptive, FixedSteps, Natural, Random
from isvi.auto import Auto
from isvi.core.errors import CheckpointError, first_line, require
from isvi.estimators import Reparameterization, ScoreFunction
from isvi.families import (
    Beta,
    Block,
    Dirichlet,
    FullRank,
    Gamma,
    LogNormal,
    LowRank,
    MeanField,
    Nested,
    StudentT,
    Warped,
)

ROLES: dict[str, tuple[type, ...]] = {
    "algorithm": (ISAG, ISGD, Natural, SAG, SGD, SRA, Auto),
    "estimator": (Reparameterization, ScoreFunction),
    "family": (Beta, Block, Dirichlet, FullRank, Gamma, LogNormal, LowRank, MeanField, Nested, StudentT, Warped),
}
"""What an option may be that is no number."""
NUMBERS: dict[str, tuple[type, ...]] = {
    "batch_size": (int, type(None)),
    "budget": (int,),
    "initial_scale": (float, int, type(None)),
    "kept_back": (int, type(None)),
    "seed": (int,),
}
KINDS: dict[str, type] = {
    kind.__name__: kind
    for kind in (Adaptive, FixedSteps, Random, *(kind for kinds in ROLES.values() for kind in kinds))
}


def as_json(choice: Any) -> Any:
    """A choice as plain JSON. One of an unknown kind becomes its name alone, and has to be given again."""
    if is_dataclass(choice) and not isinstance(choice, type):
        if KINDS.get(type(choice).__name__) is not type(choice):
            return {"unknown kind": type(choice).__name__}
        return {
            "kind": type(choice).__name__,
            **{field.name: as_json(getattr(choice, field.name)) for field in fields(choice)},
        }
    if isinstance(choice, Mapping):
        return {"by latent": {str(name): as_json(one) for name, one in choice.items()}}
    if isinstance(choice, (list, tuple)):
        return [as_json(one) for one in choice]
    if choice is None or isinstance(choice, (bool, int, float, str)):
        return choice
    if isinstance(choice, (np.integer, np.floating, np.bool_)):
        return choice.item()
    return {"unknown kind": type(choice).__name__}


def from_json(found: Any) -> Any:
    """The choice that :func:`as_json` wrote."""
    if isinstance(found, list):
        return [from_json(one) for one in found]
    if not isinstance(found, dict):
        return found
    if isinstance(found.get("by latent"), dict):
        return {name: from_json(one) for name, one in found["by latent"].items()}
    kind = KINDS.get(str(found.get("kind", "")))
    if kind is None:
        name = found.get("unknown kind", found.get("kind"))
        raise CheckpointError(f"the run used {name}, which isvi cannot restore by itself: pass it again.")
    try:
        made = kind(**{name: from_json(value) for name, value in found.items() if name != "kind"})
    except (TypeError, ValueError) as error:
        raise CheckpointError(f"{kind.__name__} cannot be made of {found!r:.200}: {first_line(error)}.") from None
    require(as_json(made) == found, CheckpointError, f"{kind.__name__} cannot be made of {found!r:.200}.")
    return made


def restored(options: Mapping[str, Any], known: Sequence[str], given: Mapping[str, Any]) -> dict[str, Any]:
    """The options that a run was started with, by the names that are known, from JSON that somebody may have edited;
    those that are given again are taken as they are."""
    require(
        sorted(options) == sorted(known),
        CheckpointError,
        f"its options are {', '.join(sorted(options))} instead of {', '.join(sorted(known))}.",
    )
    found = {name: given[name] if given.get(name) is not None else from_json(one) for name, one in options.items()}
    for name, kinds in NUMBERS.items():
        fits = type(found[name]) in kinds and (name == "seed" or found[name] is None or found[name] > 0)
        require(fits, CheckpointError, f"its option {name} is {found[name]!r:.100}.")
    for name, kinds in ROLES.items():
        several = found[name].values() if name == "family" and isinstance(found[name], Mapping) else [found[name]]
        fits = given.get(name) is not None or all(isinstance(one, kinds) for one in several)
        require(fits, CheckpointError, f"its option {name} is {found[name]!r:.100}.")
    return found
