"""Choices as JSON, and back: only choices of the kinds listed here, so that reading runs nobody's code."""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from isvi.algorithms import ISAG, ISGD, SAG, SGD, SRA, Adaptive, FixedSteps, Random
from isvi.auto import Auto
from isvi.core.errors import CheckpointError
from isvi.estimators import Reparameterization, ScoreFunction
from isvi.families import Beta, Block, Dirichlet, FullRank, Gamma, LogNormal, LowRank, MeanField, StudentT

KINDS: dict[str, type] = {
    kind.__name__: kind
    for kind in (
        *(ISAG, ISGD, SAG, SGD, SRA, Auto),
        *(Adaptive, FixedSteps, Random),
        *(Reparameterization, ScoreFunction),
        *(Beta, Block, Dirichlet, FullRank, Gamma, LogNormal, LowRank, MeanField, StudentT),
    )
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
    return {"unknown kind": type(choice).__name__}


def from_json(found: Any) -> Any:
    """The choice that :func:`as_json` wrote."""
    if isinstance(found, list):
        return [from_json(one) for one in found]
    if not isinstance(found, dict):
        return found
    if "by latent" in found:
        return {name: from_json(one) for name, one in found["by latent"].items()}
    kind = KINDS.get(found.get("kind", ""))
    if kind is None:
        name = found.get("unknown kind", found.get("kind"))
        raise CheckpointError(f"the run used {name}, which isvi cannot restore by itself: pass it again.")
    return kind(**{name: from_json(value) for name, value in found.items() if name != "kind"})
