"""From what the user passed to everything a run needs, decided."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, PRNGKeyArray

from isvi.algorithms import SGD, AlgorithmOptions, Method, build
from isvi.auto import Auto
from isvi.auto.dense import Dense, closest
from isvi.auto.natural import Natural
from isvi.auto.whole import Whole
from isvi.core.compiling import compiled_once, effort
from isvi.data.opening import Data
from isvi.estimators import Estimator, EstimatorOptions, Reparameterization
from isvi.families import Approximation, approximate
from isvi.families.base import Params
from isvi.fitting.options import (
    ADAM_SCALE,
    FALLBACK_RATE,
    FALLBACK_RATE_FROM_THE_BEST,
    Options,
    choose_budget,
    choose_family,
    choose_method,
    choose_scale,
    choose_starts,
    default_optimizer,
    rows_at_once,
)
from isvi.fitting.start import given_values, start_params
from isvi.fitting.starts import Starts
from isvi.model.binding import Bindable, bind, make_target
from isvi.model.checks import DRAWS, Trial
from isvi.model.cutting import cut
from isvi.model.model import Model
from isvi.model.target import Target


@dataclass(frozen=True)
class Setup:
    """Everything a run needs, decided.

    Attributes:
        options: what was chosen, by the user or the library; nothing in it is left open.
        optimizer: the user's, or None for the library's own.
    """

    options: Options
    model: Model
    dataset: Data
    approximation: Approximation
    target: Target
    algorithm: AlgorithmOptions
    estimator: EstimatorOptions
    optimizer: optax.GradientTransformation | None
    budget: int

    @cached_property
    def keys(self) -> tuple[PRNGKeyArray, PRNGKeyArray, PRNGKeyArray]:
        """For the jitter of the start, for trying it out, and for the run."""
        jitter_key, start_key, run_key = compiled_once(lambda seed: tuple(jax.random.split(jax.random.key(seed), 3)))(
            self.options.seed
        )
        return jitter_key, start_key, run_key

    @property
    def run_key(self) -> PRNGKeyArray:
        return self.keys[2]

    @cached_property
    def trial(self) -> Trial:
        return Trial(self.target, self.dataset.first, self.approximation.dim)

    def check_start(self, start: Params) -> None:
        """Evaluate the model at draws from the initial approximation; everything must be finite."""
        draw = compiled_once(self.drawn_from.draw, static_argnums=2)
        self.trial.check(draw(self.keys[1], start, DRAWS), self.dataset.first)

    @cached_property
    def effort(self) -> dict[str, Any] | None:
        """Compiler options for the run."""
        per_gradient = 0.0 if self.target.on_host else self.trial.operations_per_gradient
        return effort(self.budget * per_gradient)

    @cached_property
    def on_full_rank(self) -> Whole | Dense | None:
        """What ``Auto`` does where draws of a full-rank Gaussian can be afforded."""
        if not isinstance(self.algorithm, Auto):
            return None
        return self.algorithm.on_full_rank(self.approximation, self.dataset.num_batches)

    @cached_property
    def drawn_from(self) -> Approximation:
        """What the records are drawn from, and the parameters belong to, while the method runs."""
        return self.approximation if self.on_full_rank is None else self.approximation.full_rank

    def own(self, params: Params) -> Params:
        """The method's parameters as those of the family that was asked for."""
        if self.on_full_rank is None:
            return params
        factor = closest(self.approximation, self.drawn_from.factor(params))
        return self.approximation.with_factor(self.drawn_from.location(params), factor)

    def method(self) -> Method:
        """The method that was chosen."""
        optimizer = self.optimizer or default_optimizer(self.budget, self.estimator, self.algorithm)
        estimator = self.bound_estimator()
        per_gradient = self.trial.operations_per_gradient
        estimator = estimator._replace(operations=per_gradient * estimator.num_samples, log_prior=self._free_prior)
        return build(estimator, self.on_full_rank or self.algorithm, optimizer, self.dataset)

    def bound_estimator(self, of_fallback: bool = False) -> Estimator:
        """The two verbs, for the method that was chosen or for the one that it falls back to."""
        if of_fallback:
            pairs = Reparameterization(num_samples=2, antithetic=True, signs=True)
            return (pairs if self.many else Reparameterization()).bind(self.target, self.approximation)
        options = self.estimator
        if isinstance(self.on_full_rank, Dense) and self.dataset.num_batches > 1:
            options = replace(options, signs=True)
        elif self.many:
            options = replace(options, collective=True)
        return options.bind(self.target, self.drawn_from)

    @property
    def _free_prior(self) -> Callable[[Array], Array] | None:
        """The log prior, where evaluating it is nothing next to the model."""
        if self.target.on_host or self.model.log_likelihood is None:
            return None
        return self.target.log_prior

    @property
    def many(self) -> bool:
        """Whether there are more latents than draws of a full-rank Gaussian can be afforded for."""
        return isinstance(self.algorithm, Auto) and self.on_full_rank is None

    def fallback(self, spent: int) -> Method:
        """For what is left of the budget, where ``Auto`` had to take its steps back again and again: natural-gradient
        steps for many latents, plain Adam for few."""
        estimator, left = self.bound_estimator(of_fallback=True), max(1, self.budget - spent)
        if self.many:
            steps = Natural(max(1, left // estimator.num_samples))
            return build(estimator, steps, optax.sgd(1.0), self.dataset)
        rate = FALLBACK_RATE if self.options.starts == 1 else FALLBACK_RATE_FROM_THE_BEST
        optimizer = default_optimizer(left, Reparameterization(), SGD(), rate)
        return build(estimator, SGD(), optimizer, self.dataset)

    def start(self, initial: Mapping[str, Any] | Callable | None = None) -> Params:
        """Variational parameters around the initial values."""
        scale = choose_scale(self.options.initial_scale, self.algorithm)
        params = start_params(self.keys[0], self.approximation, self.model, initial, scale)
        if self.on_full_rank is None:
            return params
        return self.drawn_from.with_factor(self.approximation.location(params), self.approximation.factor(params))

    def starts(self, start: Params) -> Starts | None:
        """This start and others around it, if more than one was chosen."""
        number = self.options.starts or 1
        return Starts.around(self.drawn_from, start, number, self.options.seed) if number > 1 else None

    def start_over(self, params: Params) -> Params:
        """The start of the fallback, around the mean of these parameters of the method's, and no wider than those."""
        drawn_from = self.drawn_from
        width = jnp.minimum(ADAM_SCALE, drawn_from.scale(params))
        return self.approximation.init(drawn_from.location(params), width)


def prepare(
    model: Model | Bindable,
    data: Any,
    options: Options,
    optimizer: optax.GradientTransformation | None = None,
    num_samples: int | None = None,
    initial: Mapping[str, Any] | Callable | None = None,
) -> Setup:
    """Check the model, the data and the choices against each other, and make the open ones."""
    model, data, batch_size = bind(model, data, options.batch_size)
    own_method = options.estimator is None and optimizer is None and isinstance(options.algorithm or Auto(), Auto)
    family = choose_family(options.family, model.latents, own_method)
    approximation = approximate(family, model.latents)
    algorithm, estimator = choose_method(approximation, options.algorithm, options.estimator, optimizer, num_samples)
    few_rows = rows_at_once(algorithm, approximation.dim)
    independent, around = options.independent_rows, given_values(model, initial)
    dataset, independent = cut(model, data, batch_size, options.seed, few_rows, independent=independent, around=around)
    budget = choose_budget(options.budget, dataset, estimator)
    few_starts = 1 if options.starts is None and around else options.starts
    decided = replace(
        options,
        family=family,
        algorithm=algorithm,
        estimator=estimator,
        batch_size=None if data is None else dataset.batch_size,
        budget=budget,
        starts=choose_starts(few_starts, approximation, algorithm, dataset, budget, estimator.num_samples),
        independent_rows=independent,
    )
    target = make_target(model, approximation.coordinates)
    return Setup(decided, model, dataset, approximation, target, algorithm, estimator, optimizer, budget)
