"""A compiled Stan program in terms of named latents: its log density, what it reports, and what it predicts."""

import logging
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from threading import Lock
from typing import Any, Protocol

import numpy as np
from jaxtyping import Array

from isvi.core.errors import ConfigurationError, ModelError, require
from isvi.core.latents import Latent, real
from isvi.frontends.stan.reading import as_json

log = logging.getLogger("isvi")


class StanModel(Protocol):
    """A compiled program with its data; the part of ``bridgestan.StanModel`` that is used here."""

    def param_names(self, *, include_tp: bool = False, include_gq: bool = False) -> list[str]: ...
    def param_unc_names(self) -> list[str]: ...
    def log_density_gradient(self, theta_unc: np.ndarray) -> tuple[float, np.ndarray]: ...
    def param_constrain(
        self, theta_unc: np.ndarray, *, include_tp: bool = False, include_gq: bool = False, rng: Any = None
    ) -> np.ndarray: ...
    def param_unconstrain_json(self, theta_json: str) -> np.ndarray: ...
    def new_rng(self, seed: int) -> Any: ...


@dataclass
class StanProgram:
    """A compiled program, in terms of named latents."""

    model: StanModel
    _lock: Lock = field(default_factory=Lock)
    _accepted: bool = False

    @cached_property
    def latents(self) -> dict[str, Latent]:
        """The parameters, each with as many unconstrained entries as Stan gives it."""
        counts: dict[str, list[str]] = {}
        for name in self.model.param_unc_names():
            counts.setdefault(_base(name), []).append(name)
        return {base: real() if names == [base] else real(len(names)) for base, names in counts.items()}

    def value_and_grad(self, values: dict[str, np.ndarray]) -> tuple[float, dict[str, np.ndarray]]:
        """The log density in the unconstrained space. Where the program rejects, there is none: NaN."""
        z = np.concatenate([np.ravel(values[name]) for name in self.latents])
        try:
            with self._lock:
                value, gradient = self.model.log_density_gradient(z)
            self._accepted = True
        except RuntimeError as error:
            if not self._accepted:
                raise ModelError(f"The Stan program cannot be evaluated where the fit starts: {error}") from error
            log.info("Stan rejected a draw: %s", error)
            value, gradient = math.nan, np.full_like(z, math.nan)
        return value, self._named(np.asarray(gradient))

    def report(self, draws: dict[str, Array]) -> dict[str, np.ndarray]:
        """Parameters and transformed parameters, in constrained space."""
        names = self.model.param_names(include_tp=True)
        return unpack(names, self._each(draws, lambda z: self.model.param_constrain(z, include_tp=True)))

    def predict(self, draws: dict[str, Array], data: Any, seed: int) -> dict[str, np.ndarray]:
        """Generated quantities."""
        require(
            data is None,
            ConfigurationError,
            "A Stan program predicts in its generated quantities, from the data it was built with: predict() takes "
            "no data.",
        )
        names = self.model.param_names(include_tp=True, include_gq=True)
        known = {_base(name) for name in self.model.param_names(include_tp=True)}
        rng = self.model.new_rng(seed)
        values = self._each(draws, lambda z: self.model.param_constrain(z, include_tp=True, include_gq=True, rng=rng))
        found = {name: value for name, value in unpack(names, values).items() if name not in known}
        require(len(found) > 0, ConfigurationError, "The Stan program has no generated quantities to predict with.")
        return found

    def unreport(self, initial: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """Unconstrained values of initial values in constrained space; parameters not named start at the image of 0."""
        latents = self.latents
        unknown = sorted(set(initial) - set(latents))
        require(
            not unknown,
            ConfigurationError,
            f"initial names {unknown}, which the Stan program does not have; its parameters are {sorted(latents)}.",
        )
        zero = np.zeros(sum(latent.size for latent in latents.values()))
        middle = unpack(self.model.param_names(), self.model.param_constrain(zero)[None])
        values = {name: initial.get(name, middle[name][0]) for name in middle}
        return self._named(self.model.param_unconstrain_json(as_json(values)))

    def _named(self, z: np.ndarray) -> dict[str, np.ndarray]:
        ends = np.cumsum([latent.size for latent in self.latents.values()])
        parts = zip(self.latents.items(), np.split(z, ends[:-1]), strict=True)
        return {name: part.reshape(latent.shape) for (name, latent), part in parts}

    def _each(self, draws: dict[str, Array], function: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
        flat = np.concatenate([np.reshape(draws[name], (len(draws[name]), -1)) for name in self.latents], axis=1)
        with self._lock:
            return np.stack([function(z) for z in np.ascontiguousarray(flat, np.float64)])


def _base(name: str) -> str:
    """The variable that an entry such as ``theta.2.1`` belongs to."""
    return re.split(r"[.:]", name, maxsplit=1)[0]


def unpack(names: list[str], values: np.ndarray) -> dict[str, np.ndarray]:
    """Arrays by variable from Stan's flat list, where ``theta.2.1`` is entry [1, 0] (numbers from 1)."""
    columns: dict[str, list[tuple[tuple[int, ...], int]]] = {}
    for column, name in enumerate(names):
        base, *indices = name.split(".")
        columns.setdefault(base, []).append((tuple(int(index) - 1 for index in indices), column))
    arrays = {}
    for base, entries in columns.items():
        shape = tuple(max(index) + 1 for index in zip(*(index for index, _ in entries), strict=True))
        arrays[base] = np.empty((len(values), *shape))
        for index, column in entries:
            entry: tuple[slice | int, ...] = (slice(None), *index)
            arrays[base][entry] = values[:, column]
    return arrays
