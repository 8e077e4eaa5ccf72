"""From what the user passed to everything a run needs, decided."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, PRNGKeyArray

from isvi.algorithms import ISGD, SGD, AlgorithmOptions, Auto, Method, build
from isvi.algorithms.whole import LARGEST_DIM, Whole, closest
from isvi.core.compiling import compiled_once, effort
from isvi.core.errors import ConfigurationError, require
from isvi.core.latents import Latent
from isvi.data.opening import DEFAULT_BATCH_SIZE, Data, open_data
from isvi.estimators import EstimatorOptions, Reparameterization
from isvi.families import Approximation, Family, MeanField, approximate
from isvi.families.base import Params
from isvi.model.binding import Bindable, bind, make_target
from isvi.model.checks import DRAWS, Trial, check_model
from isvi.model.model import Model
from isvi.model.target import Target

log = logging.getLogger("isvi")

FEW_ROWS = 10_000
"""So few rows are one mini-batch for ``Auto`` where the latents are few too: without noise between mini-batches less
has to be averaged."""
ADAM_SCALE = 0.1
ADAM_RATE = 0.05
FALLBACK_RATE = 0.1
"""Of Adam where ``Auto`` hands over to it: posteriors with several modes, of which larger steps find better ones."""
AUTO_SCALE = 0.001


@dataclass(frozen=True)
class Options:
    """The choices of a run that its checkpoints remember; None leaves one to the library."""

    family: Family | Mapping[str, Family] = MeanField()
    algorithm: AlgorithmOptions | None = None
    estimator: EstimatorOptions | None = None
    batch_size: int | None = None
    budget: int | None = None
    initial_scale: float | None = None
    seed: int = 0


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
    def whole(self) -> Whole | None:
        """What ``Auto`` does where all data is one mini-batch and the latents are few."""
        if not isinstance(self.algorithm, Auto):
            return None
        return self.algorithm.on_whole_data(self.approximation, self.dataset.num_batches)

    @cached_property
    def drawn_from(self) -> Approximation:
        """What the records are drawn from, and the parameters belong to, while the method runs."""
        return self.approximation if self.whole is None else self.approximation.full_rank

    def own(self, params: Params) -> Params:
        """The method's parameters as those of the family that was asked for."""
        if self.whole is None:
            return params
        factor = closest(self.approximation, self.drawn_from.factor(params))
        return self.approximation.with_factor(self.drawn_from.location(params), factor)

    def method(self) -> Method:
        """The method that was chosen."""
        optimizer = self.optimizer or _default_optimizer(self.budget, self.estimator, self.algorithm)
        estimator = self.estimator.bind(self.target, self.drawn_from)
        per_gradient = self.trial.operations_per_gradient
        estimator = estimator._replace(operations=per_gradient * estimator.num_samples)
        return build(estimator, self.whole or self.algorithm, optimizer, self.dataset)

    def fallback(self, spent: int) -> Method:
        """Plain Adam, for what is left of the budget: where ``Auto`` had to take its steps back again and again."""
        estimator, algorithm = Reparameterization(), SGD()
        optimizer = _default_optimizer(max(1, self.budget - spent), estimator, algorithm, FALLBACK_RATE)
        return build(estimator.bind(self.target, self.approximation), algorithm, optimizer, self.dataset)

    def start(self, initial: Mapping[str, Any] | None = None) -> Params:
        """Variational parameters around the initial values."""
        scale = self.options.initial_scale
        if scale is None:
            scale = AUTO_SCALE if isinstance(self.algorithm, Auto) else ADAM_SCALE
        params = _start(self.keys[0], self.approximation, self.model, initial, scale)
        if self.whole is None:
            return params
        return self.drawn_from.with_factor(self.approximation.location(params), self.approximation.factor(params))

    def start_over(self, params: Params) -> Params:
        """The start of the fallback: from where the run began, not from where ``Auto`` was, which on mixtures is
        often a worse place than none."""
        width = jnp.full(self.approximation.dim, ADAM_SCALE)
        return self.approximation.init(self.drawn_from.location(params), width)


def prepare(
    model: Model | Bindable,
    data: Any,
    options: Options,
    optimizer: optax.GradientTransformation | None = None,
    num_samples: int | None = None,
) -> Setup:
    """Check the model, the data and the choices against each other, and make the open ones."""
    model, data, batch_size = bind(model, data, options.batch_size)
    approximation = approximate(options.family, model.latents)
    algorithm, estimator = _choices(approximation, options.algorithm, options.estimator, optimizer, num_samples)
    few_rows = FEW_ROWS if isinstance(algorithm, Auto) and approximation.dim <= LARGEST_DIM else DEFAULT_BATCH_SIZE
    dataset = open_data(data, batch_size, options.seed, few_rows)
    check_model(model, dataset.first)
    budget = _budget(options.budget, dataset, estimator)
    cut = None if data is None else dataset.batch_size
    decided = replace(options, algorithm=algorithm, estimator=estimator, batch_size=cut, budget=budget)
    target = make_target(model, approximation.coordinates)
    return Setup(decided, model, dataset, approximation, target, algorithm, estimator, optimizer, budget)


def _choices(
    approximation: Approximation,
    algorithm: AlgorithmOptions | None,
    estimator: EstimatorOptions | None,
    optimizer: optax.GradientTransformation | None,
    num_samples: int | None,
) -> tuple[AlgorithmOptions, EstimatorOptions]:
    """The algorithm and the estimator, as far as the user left them open."""
    if algorithm is None:
        open_choice = approximation.gaussian and estimator is None and optimizer is None
        algorithm = Auto() if open_choice else ISGD()
    require(
        optimizer is None or not isinstance(algorithm, Auto),
        ConfigurationError,
        "Auto chooses its own steps and takes no optimizer; leave optimizer out, or choose ISGD() or SGD().",
    )
    if estimator is None:
        pairs = isinstance(algorithm, Auto)
        estimator = Reparameterization(num_samples=2, antithetic=True) if pairs else Reparameterization()
    return algorithm, estimator if num_samples is None else replace(estimator, num_samples=num_samples)


def _budget(budget: int | None, dataset: Data, estimator: EstimatorOptions) -> int:
    """By default at least ten passes over the data."""
    if budget is None:
        return max(3000, 10 * dataset.num_batches) * estimator.num_samples
    require(
        isinstance(budget, (int, np.integer)) and budget >= estimator.num_samples,
        ConfigurationError,
        f"budget is a number of model gradients and must allow at least one record of {estimator.num_samples} "
        f"draw(s); got {budget!r}.",
    )
    return int(budget)


def _default_optimizer(
    budget: int, estimator: EstimatorOptions, algorithm: AlgorithmOptions, rate: float = ADAM_RATE
) -> optax.GradientTransformation:
    """Adam with a rate that falls to zero at about the end of the budget."""
    if isinstance(algorithm, Auto):
        return optax.sgd(1.0)  # Auto's gradient is the step itself
    steps_per_record = 1 / (1 - algorithm.t) if isinstance(algorithm, ISGD) and algorithm.policy is None else 1
    steps = max(1, round(budget / estimator.num_samples * steps_per_record))
    return optax.adam(optax.cosine_decay_schedule(rate, steps))


def _start(
    key: PRNGKeyArray,
    approximation: Approximation,
    model: Model,
    initial: Mapping[str, Any] | None,
    initial_scale: float,
) -> Params:
    """Variational parameters around the initial values."""
    require(
        np.ndim(initial_scale) == 0 and np.isfinite(initial_scale) and initial_scale > 0,
        ConfigurationError,
        f"initial_scale must be a positive number; got {initial_scale!r}.",
    )
    given = dict(initial or {})
    if given and model.unreport is not None:
        given = dict(model.unreport(given))
    unknown = sorted(set(given) - set(model.latents))
    require(
        not unknown,
        ConfigurationError,
        f"initial names {unknown}, which the model does not have; its latents are {sorted(model.latents)}.",
    )
    given = {name: np.asarray(value, jnp.result_type(float)) for name, value in given.items()}

    @compiled_once
    def located(key: PRNGKeyArray, given: dict[str, Array]) -> Array:
        keys = jax.random.split(key, len(model.latents))
        values = {
            name: _initial_value(one_key, name, latent, given.get(name))
            for one_key, (name, latent) in zip(keys, model.latents.items(), strict=True)
        }
        return approximation.coordinates.encode(values)

    location = np.asarray(located(key, given))
    require(
        bool(np.isfinite(location).all()),
        ConfigurationError,
        "initial values must lie strictly inside the latents' supports; these do not: "
        + ", ".join(
            sorted(
                {
                    entry.name
                    for entry in approximation.coordinates.entries
                    if not np.isfinite(location[entry.start : entry.stop]).all()
                }
            )
        ),
    )
    return compiled_once(approximation.init)(location, np.full_like(location, initial_scale))


def _initial_value(key: PRNGKeyArray, name: str, latent: Latent, given: Array | None) -> Array:
    if given is None:
        # Not exactly 0: components of a mixture that start alike would stay alike.
        return latent.transform(0.01 * jax.random.normal(key, latent.unconstrained_shape))
    require(
        jnp.broadcast_shapes(given.shape, latent.shape) == latent.shape,
        ConfigurationError,
        f"initial[{name!r}] must have shape {latent.shape}; got {given.shape}.",
    )
    return jnp.broadcast_to(given, latent.shape)
