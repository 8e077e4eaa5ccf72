"""From what the user passed to everything a run needs, decided."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, PRNGKeyArray

from isvi.algorithms import SGD, AlgorithmOptions, Memory, Method, build
from isvi.auto import Auto
from isvi.auto.dense import Dense, closest
from isvi.auto.directions import with_directions
from isvi.auto.natural import NaturalSteps
from isvi.auto.whole import Whole
from isvi.core.compiling import compiled_once, effort
from isvi.core.errors import ConfigurationError, StartError, require
from isvi.data.devices import Devices, spread
from isvi.data.opening import Data
from isvi.estimators import Estimator, EstimatorOptions, Reparameterization
from isvi.families import Approximation, Family, FullRank, Nested, Warped, approximate
from isvi.families.base import Params
from isvi.fitting.grouped import behind, groups_of
from isvi.fitting.options import (
    ADAM_SCALE,
    FALLBACK_RATE,
    FALLBACK_RATE_FROM_THE_BEST,
    LARGEST_NESTED,
    LARGEST_WARPED,
    NESTED_CURVATURES,
    NESTED_DRAWS,
    PATIENCE,
    STARTS,
    Options,
    choose_budget,
    choose_family,
    choose_method,
    choose_scale,
    choose_starts,
    default_optimizer,
    nestable,
    rows_at_once,
    usual_with_integrals,
    warpable,
)
from isvi.fitting.start import given_values, start_params
from isvi.fitting.starts import Starts
from isvi.model.binding import Bindable, bind, make_target
from isvi.model.checks import DRAWS, Trial
from isvi.model.cutting import cut
from isvi.model.external import ExternalModel
from isvi.model.grouping import Groups
from isvi.model.local import Marginal, marginal_of
from isvi.model.model import Model
from isvi.model.target import Target

CLOSER = 1e-4
"""How much closer to the image of 0 a fit starts, where the model is not finite next to it."""


@dataclass(frozen=True)
class Setup:
    """Everything a run needs, decided.

    Attributes:
        options: what was chosen, by the user or the library; nothing in it is left open.
        optimizer: the user's, or None for the library's own.
        groups: latents that belong to groups of rows, where the method asks for them.
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
    trial: Trial
    groups: Groups | None = None
    warp: Warped | None = None
    """Whether the Gaussian is to be bent when it has settled, and kept so in any case."""
    nested: Nested | None = None
    """Whether latents that drive the others are to be looked for, and such a q is to be kept in any case."""

    @cached_property
    def bent(self) -> Approximation:
        """What the Gaussian may be bent to."""
        return approximate(Warped(), self.model.latents)

    @property
    def bends(self) -> bool:
        """Whether anything is to be done after the Gaussian."""
        return self.warp is not None or self.nested is not None

    @property
    def budget_of_method(self) -> int:
        """What may be spent before the Gaussian is bent."""
        return self.budget - (self.options.kept_back or 0)

    @cached_property
    def keys(self) -> tuple[PRNGKeyArray, PRNGKeyArray, PRNGKeyArray]:
        """For the jitter of the start, for trying it out, and for the run."""
        jitter_key, start_key, run_key = compiled_once(lambda seed: tuple(jax.random.split(jax.random.key(seed), 3)))(
            self.options.seed
        )
        return jitter_key, start_key, run_key

    def with_nodes(self, nodes: tuple[int, bool] | None) -> "Setup":
        """The same, with the integrals over local latents taken by so many nodes, around the mode or everywhere."""
        if nodes is None:
            return self
        marginal = marginal_of(self.model)
        finer = marginal.with_rule(replace(marginal.rule, count=nodes[0], everywhere=nodes[1]))
        model = replace(self.model, log_likelihood=finer)
        target = make_target(model, self.approximation.coordinates)
        trial = Trial(target, self.dataset.first, self.approximation.dim)
        return replace(self, model=model, target=target, trial=trial)

    @property
    def run_key(self) -> PRNGKeyArray:
        return self.keys[2]

    def check_start(self, start: Params) -> None:
        """Evaluate the model at draws from the initial approximation; everything must be finite."""
        self.trial.check(self._tried_at(start), self.dataset.first)

    def _tried_at(self, start: Params) -> Array:
        return self._draws(self.keys[1], start, DRAWS)

    @cached_property
    def _draws(self) -> Callable[..., Array]:
        return compiled_once(self.drawn_from.draw, static_argnums=2)

    @cached_property
    def effort(self) -> dict[str, Any] | None:
        """Compiler options for the run."""
        per_gradient = 0.0 if self.target.on_host else self.trial.operations_per_gradient
        if isinstance(self.algorithm, Auto) and isinstance(self.model.log_likelihood, Marginal):
            usual = usual_with_integrals(self.dataset, self.estimator)
            return effort(min(self.budget_of_method, usual) * per_gradient, at_most=False)
        return effort(self.budget_of_method * per_gradient)

    @cached_property
    def on_full_rank(self) -> Whole | Dense | None:
        """What ``Auto`` does where draws of a full-rank Gaussian can be afforded."""
        if not isinstance(self.algorithm, Auto):
            return None
        return self.algorithm.on_full_rank(self.approximation, self.dataset.num_batches, self.groups)

    @cached_property
    def drawn_from(self) -> Approximation:
        """What the records are drawn from, and the parameters belong to, while the method runs."""
        if self.on_full_rank is not None:
            return self.approximation.full_rank
        return self.approximation.independent if self.many and self.approximation.low_rank else self.approximation

    def own(self, params: Params, memory: Memory | None = None) -> Params:
        """The method's parameters as those of the family that was asked for, with what is in its memory, if there is
        one."""
        if self.drawn_from == self.approximation:
            return params
        if self.on_full_rank is None:
            location, precision = self.drawn_from.location(params), self.drawn_from.scale(params) ** -2.0
            if memory is None or not memory.store.records.pairs.weight > 0:
                return self.approximation.match(location, precision)
            found = compiled_once(partial(with_directions, self.approximation))
            return found(memory.store.records.pairs, location, precision)
        factor = closest(self.approximation, self.drawn_from.factor(params))
        return self.approximation.with_factor(self.drawn_from.location(params), factor)

    def method(self) -> Method:
        """The method that was chosen."""
        optimizer = self.optimizer or default_optimizer(self.budget, self.estimator, self.algorithm)
        estimator = self.bound_estimator()
        per_gradient = self.trial.operations_per_gradient
        estimator = estimator._replace(operations=per_gradient * estimator.num_samples, log_prior=self.free_prior)
        return build(estimator, self.on_full_rank or self.algorithm, optimizer, self.dataset)

    def bound_estimator(self, of_fallback: bool = False) -> Estimator:
        """The two verbs, for the method that was chosen or for the one that it falls back to."""
        if of_fallback:
            pairs = Reparameterization(num_samples=2, antithetic=True, signs=True)
            if self.many:
                return pairs.bind(self.target, self.drawn_from)
            return Reparameterization().bind(self.target, self.approximation)
        options = self.estimator
        if isinstance(self.on_full_rank, Dense) and self.dataset.num_batches > 1:
            options = replace(options, signs=True)
            if self.groups is not None:  # a pair of either kind
                options = replace(options, apart=self.groups.shared, num_samples=2 * options.num_samples)
        elif self.many:
            options = replace(options, collective=True)
        return options.bind(self.target, self.drawn_from)

    @property
    def free_prior(self) -> Callable[[Array], Array] | None:
        """The log prior, where evaluating it is nothing next to the model."""
        if self.target.on_host or self.model.log_likelihood is None:
            return None
        return self.target.log_prior

    @property
    def many(self) -> bool:
        """Whether there are more latents than draws of a full-rank Gaussian can be afforded for."""
        return isinstance(self.algorithm, Auto) and self.on_full_rank is None

    def fallback(self, spent: int, several: bool) -> Method:
        """For what is left of the budget, where ``Auto`` had to take its steps back again and again: natural-gradient
        steps for many latents, plain Adam for few; ``several`` if there were several starts."""
        estimator, left = self.bound_estimator(of_fallback=True), max(1, self.budget_of_method - spent)
        if self.many:
            steps = NaturalSteps(max(1, left // estimator.num_samples))
            return build(estimator, steps, optax.sgd(1.0), self.dataset)
        rate = FALLBACK_RATE_FROM_THE_BEST if several else FALLBACK_RATE
        optimizer = default_optimizer(left, Reparameterization(), SGD(), rate)
        return build(estimator, SGD(), optimizer, self.dataset)

    def checked_start(self, initial: Mapping[str, Any] | Callable | None = None) -> Params:
        """The start. Where nothing was chosen, one that is closer to 0, if the model is not finite there, or so much
        worse that it would have to come back from afar: next to predictors that were not scaled a hundredth is much."""
        if self.options.initial_scale is not None or given_values(self.model, initial):
            start, closer = self.start(initial), None
        else:
            start, closer = self._starts(initial, (1.0, CLOSER))
        try:
            self.check_start(start)
        except StartError as error:
            if closer is None or not self._finite_at(closer):
                raise self.trial.explained(error, self._tried_at(start), self.dataset.first) from None
            return closer
        return closer if closer is not None and self._far_better(closer, start) else start

    def _finite_at(self, start: Params) -> bool:
        try:
            self.check_start(start)
        except StartError:
            return False
        return True

    def _far_better(self, closer: Params, start: Params) -> bool:
        """Whether the log joint is higher there by more than all of it."""
        if self.target.on_host or not self._finite_at(closer):
            return False
        near, far = (self.trial.value(self._tried_at(one), self.dataset.first) for one in (closer, start))
        return near - far > abs(near) + self.approximation.dim

    def start(self, initial: Mapping[str, Any] | Callable | None = None) -> Params:
        """Variational parameters around the initial values."""
        return self._starts(initial, (1.0,))[0]

    def _starts(self, initial: Mapping[str, Any] | Callable | None, nearness: Sequence[float]) -> list[Params]:
        scale = choose_scale(self.options.initial_scale, self.algorithm)
        # Around the same point, whatever the family.
        approximation = self.drawn_from if self.many else self.approximation
        starts = start_params(self.keys[0], approximation, self.model, initial, scale, nearness)
        if self.drawn_from == approximation:
            return starts
        location, factor = approximation.location, approximation.factor
        return [self.drawn_from.with_factor(location(start), factor(start)) for start in starts]

    def starts(self, start: Params) -> Starts | None:
        """This start and others around it, if more than one was chosen, or may turn out to be needed."""
        chosen, seed = self.options.starts, self.options.seed
        if chosen == 1:
            return None
        return Starts.around(self.drawn_from, start, chosen or STARTS, seed, where_needed=chosen is None)

    def start_over(self, params: Params) -> Params:
        """The start of the fallback, around the mean of these parameters of the method's, and no wider than those."""
        drawn_from = self.drawn_from
        width = jnp.minimum(ADAM_SCALE, drawn_from.scale(params))
        return (drawn_from if self.many else self.approximation).init(drawn_from.location(params), width)


def prepare(
    model: Model | Bindable,
    data: Any,
    options: Options,
    optimizer: optax.GradientTransformation | None = None,
    num_samples: int | None = None,
    initial: Mapping[str, Any] | Callable | None = None,
    devices: Devices | None = None,
) -> Setup:
    """Check the model, the data and the choices against each other, and make the open ones."""
    model, data, batch_size = bind(model, data, options.batch_size)
    own_method = options.estimator is None and optimizer is None and isinstance(options.algorithm or Auto(), Auto)
    family = choose_family(options.family, model.latents, own_method)
    open_method = isinstance(options.algorithm or Auto(), Auto) and optimizer is None
    bent = isinstance(family, (Warped, Nested)) and open_method
    approximation = approximate(FullRank() if bent else family, model.latents)
    algorithm, estimator = choose_method(approximation, options.algorithm, options.estimator, optimizer, num_samples)
    few_rows = rows_at_once(algorithm, approximation.dim)
    independent, around = options.independent_rows, given_values(model, initial)
    dataset, independent = cut(model, data, batch_size, options.seed, few_rows, independent=independent, around=around)
    if devices is not None:
        require(
            data is not None and not isinstance(model, ExternalModel),
            ConfigurationError,
            "devices are for models in JAX with data, whose rows they share; a model on the host is evaluated by "
            "workers instead (isvi.fit(..., workers=...)).",
        )
        dataset = spread(dataset, devices)
    able = warpable(algorithm, approximation.dim, dataset)
    nests = nestable(algorithm, approximation.dim, dataset, make_target(model, approximation.coordinates).on_host)
    if bent and isinstance(algorithm, Auto):
        _refuse_bending(family, able, nests, approximation.dim, dataset)
    if bent and not (able or nests):  # the estimator asks for an algorithm of its own
        approximation = approximate(family, model.latents)
        algorithm, estimator = choose_method(
            approximation, options.algorithm, options.estimator, optimizer, num_samples
        )
    if options.family is None and (able or nests):
        family, bent = Warped(always=False) if able else Nested(always=False), True
    warp = family if bent and able and isinstance(family, Warped) else None
    nested = family if isinstance(family, Nested) else Nested(always=False) if warp and not warp.always else None
    nested = nested if bent and nests else None
    on_full_rank = algorithm.on_full_rank(approximation, dataset.num_batches) if isinstance(algorithm, Auto) else None
    patience = PATIENCE if isinstance(on_full_rank, Dense) else 1
    budget, kept_back = choose_budget(options.budget, dataset, estimator, patience), options.kept_back
    if (warp or nested) and options.budget is None:
        kept_back = budget // 2
        if nested:
            kept_back += NESTED_CURVATURES * (2 * approximation.dim + 1) + NESTED_DRAWS
        budget += kept_back
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
        kept_back=kept_back,
    )
    target = make_target(model, approximation.coordinates)
    trial, groups = Trial(target, dataset.first, approximation.dim), None
    if names := groups_of(model, dataset, algorithm, approximation, trial):
        approximation, groups = behind(model.latents, names, family)
        if approximation.coordinates != target.coordinates:
            target = make_target(model, approximation.coordinates)
            trial = Trial(target, dataset.first, approximation.dim)
    return Setup(
        decided,
        model,
        dataset,
        approximation,
        target,
        algorithm,
        estimator,
        optimizer,
        budget,
        trial,
        groups,
        warp,
        nested,
    )


def _refuse_bending(family: Family | Mapping[str, Family], warps: bool, nests: bool, dim: int, dataset: Data) -> None:
    """Raise if the family that was named cannot follow a Gaussian here."""
    here = f"here are {dim:,} entries and {dataset.num_batches:,} mini-batches. Use FullRank(), or a batch_size of all"
    require(
        warps or not isinstance(family, Warped),
        ConfigurationError,
        f"isvi.Warped() bends a Gaussian that was fitted to all data at once, of up to {LARGEST_WARPED} entries; {here}"
        " rows if that can be afforded.",
    )
    require(
        nests or not isinstance(family, Nested),
        ConfigurationError,
        "isvi.Nested() follows a Gaussian that was fitted to all data at once, of a model in JAX with 3 to "
        f"{LARGEST_NESTED} entries; {here} rows if that can be afforded.",
    )
