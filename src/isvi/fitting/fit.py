"""``isvi.fit``: from a model and data to an approximation of the posterior."""

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, PRNGKeyArray

from isvi.algorithms import ISGD, SGD, AlgorithmOptions, Auto, build
from isvi.algorithms.whole import closest
from isvi.core.errors import ConfigurationError, require
from isvi.core.latents import Latent
from isvi.data.arrays import checked_arrays
from isvi.data.dataset import Dataset
from isvi.estimators import EstimatorOptions, Reparameterization
from isvi.families import Approximation, Family, MeanField, approximate
from isvi.families.base import Params
from isvi.fitting.driver import Driver, Outcome
from isvi.fitting.loop import LoopState, start_loop
from isvi.fitting.progress import Reporter, reporter
from isvi.fitting.result import Fit
from isvi.memory.store import num_bytes
from isvi.model.binding import Bindable, bind, make_target
from isvi.model.checks import check_model, check_start
from isvi.model.model import Model
from isvi.model.target import Target

log = logging.getLogger("isvi")

DEFAULT_BATCH_SIZE = 1000
FEW_ROWS = 10_000
"""So few rows are one mini-batch for ``Auto`` if the latents are few too: without noise between mini-batches it needs
far fewer passes over them."""
ADAM_SCALE = 0.1
AUTO_SCALE = 0.001


def fit(
    model: Model | Bindable,
    data: Any = None,
    *,
    family: Family | Mapping[str, Family] = MeanField(),  # noqa: B008 (immutable)
    algorithm: AlgorithmOptions | None = None,
    estimator: EstimatorOptions | None = None,
    optimizer: optax.GradientTransformation | None = None,
    batch_size: int | None = None,
    num_samples: int | None = None,
    budget: int | None = None,
    initial: Mapping[str, Any] | None = None,
    initial_scale: float | None = None,
    seed: int = 0,
    progress: bool | None = None,
) -> Fit:
    """Fit a variational approximation to the posterior.

    Args:
        model: the latents and their log densities; or a model of a front end, such as ``isvi.from_numpyro(...)``.
        data: dict or tuple of arrays with a common first axis, or a DataFrame; None for a bare density.
        family: the shape of the approximation, or a mapping from latents to families.
        algorithm: when the model is evaluated and which evaluations are used. By default :class:`isvi.Auto`,
            which chooses everything else too; for families that are not Gaussian, or if an optimizer or an
            estimator is given, :class:`isvi.ISGD`.
        estimator: how the ELBO's gradient is estimated from them.
        optimizer: any optax optimizer; by default Adam, with a rate that falls to zero over the budget.
        batch_size: rows per mini-batch; by default 1,000; all if there are no more than that, or, for ``Auto`` with
            up to 100 entries of the latents, no more than 10,000.
        num_samples: draws per record; shorthand for the estimator's option of that name.
        budget: how many model gradients (of one mini-batch, at one draw) may be evaluated.
        initial: constrained values at which to start, by latent; others start near the image of 0.
        initial_scale: standard deviation at the start, in the coordinates of the approximation: by default 0.1, or
            0.001 for ``Auto``, which finds the right one itself.
        seed: everything random follows from it: the same seed gives the same bits.
        progress: True for progress in any place, False for none, None for a bar where there is a terminal.
    """
    model, data, batch_size = bind(model, data, batch_size)
    approximation = approximate(family, model.latents)
    algorithm, estimator = _choices(approximation, algorithm, estimator, optimizer, num_samples)
    batch_size = _batch_size(data, batch_size, approximation, algorithm)
    dataset = Dataset.from_arrays(data, batch_size, shuffle_seed=seed)
    check_model(model, dataset)
    target = make_target(model, approximation.coordinates)
    budget = _budget(budget, dataset, estimator)
    optimizer = optimizer or _default_optimizer(budget, estimator, algorithm)
    jitter_key, start_key, run_key = jax.random.split(jax.random.key(seed), 3)
    if initial_scale is None:
        initial_scale = AUTO_SCALE if isinstance(algorithm, Auto) else ADAM_SCALE
    params = _start(jitter_key, approximation, model, initial, initial_scale)
    check_start(target, dataset, approximation.draw(start_key, params, num_samples=8))

    drawn_from = approximation
    whole = algorithm.on_whole_data(approximation, dataset.num_batches) if isinstance(algorithm, Auto) else None
    if whole is not None:
        algorithm, drawn_from = whole, approximation.full_rank
        params = drawn_from.with_factor(approximation.location(params), approximation.factor(params))
    method = build(estimator.bind(target, drawn_from), algorithm, optimizer, dataset)
    loop = start_loop(method, params, dataset, run_key)
    log.info(
        "%s latents' entries, %s rows in %s mini-batches; the memory of records takes %s bytes",
        *(f"{n:,}" for n in (approximation.dim, dataset.size, dataset.num_batches, num_bytes(loop.state.memory))),
    )
    with reporter(progress, budget) as report:
        outcome = Driver(method, dataset, run_key, report, target.on_host).drive(Outcome(loop), budget)
        if method.gave_up(outcome.loop.state):
            start = approximation.init(drawn_from.location(params), jnp.full(approximation.dim, ADAM_SCALE))
            outcome = _fall_back(outcome, start, target, approximation, dataset, run_key, report, budget)
        elif whole is not None:
            outcome.loop = _confined(outcome.loop, drawn_from, approximation)
    if outcome.error is not None:  # the model raised: so does fit, and what there is goes with it
        outcome.error.fit = Fit(model, approximation, dataset, outcome)  # type: ignore[attr-defined]
        raise outcome.error
    if not outcome.status.good:
        log.warning("%s", outcome.status)
    return Fit(model, approximation, dataset, outcome)


def _confined(loop: LoopState, drawn_from: Approximation, approximation: Approximation) -> LoopState:
    """The parameters as those of the family that was asked for."""
    params = loop.state.params
    own = approximation.with_factor(drawn_from.location(params), closest(approximation, drawn_from.factor(params)))
    return loop._replace(state=loop.state._replace(params=own))


def _fall_back(
    outcome: Outcome,
    start: Params,
    target: Target,
    approximation: Approximation,
    dataset: Dataset,
    key: PRNGKeyArray,
    report: Reporter,
    budget: int,
) -> Outcome:
    """Start over with plain Adam where ``Auto`` had to take its steps back again and again.

    From the start, not from where ``Auto`` was: on mixtures that is often a worse place than none.
    """
    log.info("the posterior is too far from quadratic for Auto; starting over with Adam")
    estimator, algorithm = Reparameterization(), SGD()
    spent = outcome.loop.state
    optimizer = _default_optimizer(max(1, budget - int(spent.gradients)), estimator, algorithm)
    method = build(estimator.bind(target, approximation), algorithm, optimizer, dataset)
    loop = start_loop(method, start, dataset, key)
    state = loop.state._replace(gradients=spent.gradients, steps=spent.steps)
    outcome.loop = loop._replace(state=state, schedule=outcome.loop.schedule)
    return Driver(method, dataset, key, report, target.on_host).drive(outcome, budget)


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


def _batch_size(
    data: Any, batch_size: int | None, approximation: Approximation, algorithm: AlgorithmOptions
) -> int | None:
    if data is None or batch_size is not None:
        return batch_size
    _, rows = checked_arrays(data)
    small = isinstance(algorithm, Auto) and algorithm.on_whole_data(approximation, num_batches=1) is not None
    return min(rows, FEW_ROWS if small and rows <= FEW_ROWS else DEFAULT_BATCH_SIZE)


def _budget(budget: int | None, dataset: Dataset, estimator: EstimatorOptions) -> int:
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
    budget: int, estimator: EstimatorOptions, algorithm: AlgorithmOptions
) -> optax.GradientTransformation:
    """Adam with a rate that falls to zero at about the end of the budget."""
    if isinstance(algorithm, Auto):
        return optax.sgd(1.0)  # Auto's gradient is the step itself
    steps_per_record = 1 / (1 - algorithm.t) if isinstance(algorithm, ISGD) and algorithm.policy is None else 1
    steps = max(1, round(budget / estimator.num_samples * steps_per_record))
    return optax.adam(optax.cosine_decay_schedule(0.05, steps))


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
    keys = jax.random.split(key, len(model.latents))
    values = {
        name: _initial_value(one_key, name, latent, given.get(name))
        for one_key, (name, latent) in zip(keys, model.latents.items(), strict=True)
    }
    location = approximation.coordinates.encode(values)
    require(
        bool(jnp.all(jnp.isfinite(location))),
        ConfigurationError,
        "initial values must lie strictly inside the latents' supports; these do not: "
        + ", ".join(
            sorted(
                {
                    entry.name
                    for entry in approximation.coordinates.entries
                    if not jnp.all(jnp.isfinite(location[entry.start : entry.stop]))
                }
            )
        ),
    )
    return approximation.init(location, jnp.full_like(location, initial_scale))


def _initial_value(key: PRNGKeyArray, name: str, latent: Latent, given: Any) -> Array:
    if given is None:
        # Not exactly 0: components of a mixture that start alike would stay alike.
        return latent.transform(0.01 * jax.random.normal(key, latent.unconstrained_shape))
    value = jnp.asarray(given, jnp.result_type(float))
    require(
        jnp.broadcast_shapes(value.shape, latent.shape) == latent.shape,
        ConfigurationError,
        f"initial[{name!r}] must have shape {latent.shape}; got {value.shape}.",
    )
    return jnp.broadcast_to(value, latent.shape)
