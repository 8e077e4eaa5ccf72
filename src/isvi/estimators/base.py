"""What every estimator has: options, and a pair of functions once bound to a model and an approximation."""

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from isvi.core.errors import ConfigurationError, require
from isvi.data.dataset import Batch
from isvi.estimators.weights import WeightHealth, Weighting, WeightMode, weight_health
from isvi.families.approximation import Approximation
from isvi.families.base import Params
from isvi.families.collective import Collective, draw_collective
from isvi.memory.record import Record
from isvi.model.target import Target


class Estimator(NamedTuple):
    """An estimator bound to a model and an approximation: pure functions.

    Attributes:
        record: ``record(key, params, batch) -> Record``. Expensive: evaluates the model, once.
        draw: ``draw(key, params, batch) -> (draws, log_density, share)``, what a record has before the model is asked.
        gradient: ``gradient(params, records) -> gradient of the ELBO``. Cheap: never evaluates the model.
            ``records`` has a leading axis; for a single record use ``record.alone()``.
        health: ``health(params, records) -> WeightHealth``.
        log_weights: ``log_weights(params, records)``, per record, draw and factor: exact density ratios.
        approximation: what is being fitted.
        num_samples: draws per record, M.
        antithetic: whether they are mirrored pairs.
        log_prior: ``log_prior(z)``, the part of the log joint that needs no data; None if it is not known apart.
        operations: floating-point operations that a record takes, about; infinite if that is not known.
    """

    record: Callable[[PRNGKeyArray, Params, Batch], Record]
    draw: Callable[[PRNGKeyArray, Params, Batch], tuple[Array, Array, Array]]
    gradient: Callable[[Params, Record], Params]
    health: Callable[[Params, Record], WeightHealth]
    log_weights: Callable[[Params, Record], Array]
    approximation: Approximation
    num_samples: int
    antithetic: bool
    operations: float = inf
    log_prior: Callable[[Array], Array] | None = None


@dataclass(frozen=True)
class EstimatorOptions:
    """Options that all estimators share.

    Attributes:
        num_samples: draws per record, the paper's M.
        antithetic: draw them as mirrored pairs (Gaussian, log-normal and Student-t families).
        signs: draw the noise as signs instead of normal numbers (Gaussian families, mirrored pairs): all squares are
            then alike. The weights of such draws mean nothing.
        apart: with ``signs``, pairs of pairs, which tell what the first so many entries of the noise do and what the
            others do (:meth:`Approximation.draw_signs`).
        collective: draw independent Gaussians by signs, and move along what many entries share too (Gaussian families,
            mirrored pairs; :mod:`isvi.families.collective`). Such draws have no weights.
        weights: ``"exact"`` density ratios; ``"paper"`` for the paper's, which leave the ratio of Jacobians
            out, so that their mean is sigma_new/sigma_old; ``"none"`` for no weights at all.
        per_factor: weight each factor by its own density ratio (slightly biased, far less noisy), or all by
            the joint one (unbiased).
        max_weight: weights above this are cut to it.
        self_normalize: divide the weights by their mean over all draws in the sum, factor by factor.
    """

    num_samples: int = 1
    antithetic: bool = False
    signs: bool = False
    apart: int = 0
    collective: bool = False
    weights: WeightMode = "exact"
    per_factor: bool = True
    max_weight: float | None = None
    self_normalize: bool = False

    def __post_init__(self) -> None:
        require(
            isinstance(self.num_samples, int) and self.num_samples >= 1,
            ConfigurationError,
            f"num_samples must be a whole number, at least 1; got {self.num_samples!r}.",
        )
        require(
            not self.antithetic or self.num_samples % 2 == 0,
            ConfigurationError,
            f"antithetic draws come in pairs: num_samples must be even; got {self.num_samples}.",
        )
        require(
            self.weights in ("exact", "paper", "none"),
            ConfigurationError,
            f"weights must be 'exact', 'paper' or 'none'; got {self.weights!r}.",
        )
        require(
            self.max_weight is None or self.max_weight > 0,
            ConfigurationError,
            f"max_weight must be positive, or None for no cap; got {self.max_weight!r}.",
        )

    def bind(self, target: Target | None, approximation: Approximation) -> Estimator:
        """The two verbs for this model and this approximation; without a model, the one that needs none."""
        require(
            not self.antithetic or approximation.symmetric,
            ConfigurationError,
            "antithetic=True needs families whose draws can be mirrored (MeanField, Block, FullRank, LogNormal, "
            "StudentT). Use antithetic=False, or another family.",
        )
        require(
            not (self.signs or self.collective) or (self.antithetic and approximation.gaussian),
            ConfigurationError,
            "signs=True and collective=True need antithetic=True and a Gaussian family.",
        )
        weighting = Weighting(approximation, self._weight_mode(), self.per_factor, self.max_weight, self.self_normalize)
        draw = self._drawer(weighting)
        return Estimator(
            record=self._recorder(target, draw),
            draw=draw,
            gradient=self._gradient(weighting),
            health=self._health(weighting),
            log_weights=weighting.log_ratios,
            approximation=approximation,
            num_samples=self.num_samples,
            antithetic=self.antithetic,
        )

    def _weight_mode(self) -> WeightMode:
        return self.weights

    def _evaluate(self, target: Target, draws: Array, batch: Batch) -> tuple[Array, Array]:
        """What the model says at the draws: log joint and gradient."""
        raise NotImplementedError

    def _gradient(self, weighting: Weighting) -> Callable[[Params, Record], Params]:
        raise NotImplementedError

    def _health(self, weighting: Weighting) -> Callable[[Params, Record], WeightHealth]:
        if self.collective:
            one = jnp.ones(())
            return lambda params, records: WeightHealth(effective=one, divergence=jnp.zeros(()), largest=one)
        return lambda params, records: weight_health(weighting.raw(params, records))

    def _drawer(self, weighting: Weighting) -> Callable[[PRNGKeyArray, Params, Batch], tuple[Array, Array, Array]]:
        approximation = weighting.approximation
        shared = Collective.of(approximation.coordinates) if self.collective else None

        # Compiled here, so that only the model is left uncompiled where it has to be evaluated on the host.
        @jax.jit
        def draw(key: PRNGKeyArray, params: Params, batch: Batch) -> tuple[Array, Array, Array]:
            if shared is not None:
                draws = draw_collective(key, approximation, shared, params, self.num_samples)
                return draws, jnp.zeros((self.num_samples, 0), draws.dtype), batch.share.astype(draws.dtype)
            if self.signs:
                draws = approximation.draw_signs(key, params, self.num_samples, self.apart)
            else:
                draws = approximation.draw(key, params, self.num_samples, self.antithetic)
            return draws, jax.vmap(weighting.density, (None, 0))(params, draws), batch.share.astype(draws.dtype)

        return draw

    def _recorder(
        self, target: Target | None, draw: Callable[[PRNGKeyArray, Params, Batch], tuple[Array, Array, Array]]
    ) -> Callable[[PRNGKeyArray, Params, Batch], Record]:
        def record(key: PRNGKeyArray, params: Params, batch: Batch) -> Record:
            assert target is not None, "bound without a model"
            draws, log_density, share = draw(key, params, batch)
            log_joint, gradient = self._evaluate(target, draws, batch)
            return Record(draws, log_density, log_joint, gradient, batch.index, share)

        return record
