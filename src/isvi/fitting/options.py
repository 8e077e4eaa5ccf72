"""The choices of a run: what the user may say, and what the library takes where nothing was said."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import optax

from isvi.algorithms import ISGD, AlgorithmOptions, Natural
from isvi.auto import Auto
from isvi.auto.dense import LARGEST_DIM as LARGEST_FULL_RANK
from isvi.auto.warping import LARGEST_DIM as LARGEST_WARPED
from isvi.auto.whole import LARGEST_DIM
from isvi.core.errors import ConfigurationError, require
from isvi.core.latents import Latent
from isvi.data.opening import DEFAULT_BATCH_SIZE, Data
from isvi.estimators import EstimatorOptions, Reparameterization
from isvi.families import Approximation, Family, FullRank, MeanField
from isvi.fitting.starts import SHARE, records_needed
from isvi.optim import natural_gradient

LARGEST_NESTED = 500
"""Entries up to which the others' curvature is computed as a whole."""
NESTED_CURVATURES, NESTED_DRAWS = 100, 3000
"""What a nested q is given beyond the Gaussian's budget: so many curvatures, of two gradients an entry, and draws."""
STARTS = 8
FEW_ROWS = 10_000
"""So few rows are one mini-batch for ``Auto`` and ``Natural`` where the latents are few too: without noise between
mini-batches less has to be averaged."""
ADAM_SCALE = 0.1
ADAM_RATE = 0.05
FALLBACK_RATE = 0.1
"""Of Adam where ``Auto`` hands over to it: posteriors with several modes, of which larger steps find better ones."""
FALLBACK_RATE_FROM_THE_BEST = 0.01
"""Where it goes on from the best of several starts: the mode is chosen, and a horseshoe throws long steps out of it."""
AUTO_SCALE = 0.001
PATIENCE = 5
"""Times the usual budget for ``Auto`` on mini-batches of up to a thousand latents: it ends by itself, after a part of
that on most regressions; where a scale and the widths of its effects wait for each other, it arrives after five."""


@dataclass(frozen=True)
class Options:
    """The choices of a run that its checkpoints remember; None leaves one to the library."""

    family: Family | Mapping[str, Family] | None = None
    algorithm: AlgorithmOptions | None = None
    estimator: EstimatorOptions | None = None
    batch_size: int | None = None
    budget: int | None = None
    initial_scale: float | None = None
    starts: int | None = None
    seed: int = 0
    independent_rows: bool | None = None
    kept_back: int | None = None
    """Of the budget, model gradients that are kept for bending the Gaussian."""


def choose_family(
    family: Family | Mapping[str, Family] | None, latents: Mapping[str, Latent], own_method: bool
) -> Family | Mapping[str, Family]:
    """As full as can be afforded, where the method is the library's own."""
    if family is not None:
        return family
    dim = sum(latent.unconstrained_size for latent in latents.values())
    return FullRank() if own_method and dim <= LARGEST_FULL_RANK else MeanField()


def warpable(algorithm: AlgorithmOptions, dim: int, dataset: Data) -> bool:
    """Whether a Gaussian can be bent after it has settled: what is remembered then are its own draws, of all rows."""
    return isinstance(algorithm, Auto) and dim <= LARGEST_WARPED and dataset.num_batches == 1


def nestable(algorithm: AlgorithmOptions, dim: int, dataset: Data, on_host: bool) -> bool:
    """Whether a Gaussian can be followed by a nested one: that takes second derivatives of all rows."""
    return isinstance(algorithm, Auto) and 2 < dim <= LARGEST_NESTED and dataset.num_batches == 1 and not on_host


def choose_method(
    approximation: Approximation,
    algorithm: AlgorithmOptions | None,
    estimator: EstimatorOptions | None,
    optimizer: optax.GradientTransformation | None,
    num_samples: int | None,
) -> tuple[AlgorithmOptions, EstimatorOptions]:
    """The algorithm and the estimator, as far as the user left them open."""
    if algorithm is None:
        open_choice = estimator is None and optimizer is None
        own = Auto() if approximation.gaussian else Natural() if approximation.knows_fisher else ISGD()
        algorithm = own if open_choice else ISGD()
    require(
        optimizer is None or not isinstance(algorithm, Auto),
        ConfigurationError,
        "Auto chooses its own steps and takes no optimizer; leave optimizer out, or choose ISGD() or SGD().",
    )
    if estimator is None:
        if isinstance(algorithm, Auto):
            estimator = Reparameterization(num_samples=2, antithetic=True)
        else:
            estimator = Reparameterization(entropy="sticking" if isinstance(algorithm, Natural) else "exact")
    return algorithm, estimator if num_samples is None else replace(estimator, num_samples=num_samples)


def rows_at_once(algorithm: AlgorithmOptions, dim: int) -> int:
    """So many rows or fewer are one mini-batch, if the user does not say."""
    return FEW_ROWS if isinstance(algorithm, (Auto, Natural)) and dim <= LARGEST_DIM else DEFAULT_BATCH_SIZE


def choose_scale(initial_scale: float | None, algorithm: AlgorithmOptions) -> float:
    """The standard deviation at the start. ``Auto`` finds the right one itself."""
    if initial_scale is not None:
        return initial_scale
    return AUTO_SCALE if isinstance(algorithm, Auto) else ADAM_SCALE


def choose_starts(
    starts: int | None,
    approximation: Approximation,
    algorithm: AlgorithmOptions,
    dataset: Data,
    budget: int,
    num_samples: int,
) -> int | None:
    """Several where all data is one mini-batch, as far as the budget goes: records cost little there, and what little
    data says is more often said of several places. Otherwise None: more than one where they turn out to be needed."""
    able = isinstance(algorithm, Auto) and approximation.gaussian
    if starts is None:
        if not able or dataset.num_batches > 1:
            return None if able and _affordable(STARTS, budget, num_samples) else 1
        return next((one for one in range(STARTS, 1, -1) if _affordable(one, budget, num_samples)), 1)
    require(
        isinstance(starts, (int, np.integer)) and starts >= 1,
        ConfigurationError,
        f"starts must be a whole number, at least 1; got {starts!r}.",
    )
    require(
        able or starts == 1,
        ConfigurationError,
        "Several starts are for Auto and Gaussian families; leave starts out, or fit with several seeds yourself.",
    )
    return int(starts)


def _affordable(starts: int, budget: int, num_samples: int) -> bool:
    return SHARE * records_needed(starts) * num_samples <= budget


def choose_budget(budget: int | None, dataset: Data, estimator: EstimatorOptions, patience: int = 1) -> int:
    """By default at least ten passes over the data; ``patience`` times as many for a method that knows when to end."""
    if budget is None:
        return patience * max(3000, 10 * dataset.num_batches) * estimator.num_samples
    require(
        isinstance(budget, (int, np.integer)) and budget >= estimator.num_samples,
        ConfigurationError,
        f"budget is a number of model gradients and must allow at least one record of {estimator.num_samples} "
        f"draw(s); got {budget!r}.",
    )
    return int(budget)


def usual_with_integrals(dataset: Data, estimator: EstimatorOptions) -> int:
    """About how many gradients ``Auto`` takes where local latents are integrated out and few others are left."""
    return (100 + 2 * dataset.num_batches) * estimator.num_samples


def default_optimizer(
    budget: int, estimator: EstimatorOptions, algorithm: AlgorithmOptions, rate: float = ADAM_RATE
) -> optax.GradientTransformation:
    """Adam, or natural gradients, with a rate that falls to zero at about the end of the budget."""
    if isinstance(algorithm, Auto):
        return optax.sgd(1.0)  # Auto's gradient is the step itself
    steps_per_record = 1 / (1 - algorithm.t) if isinstance(algorithm, ISGD) and algorithm.policy is None else 1
    steps = max(1, round(budget / estimator.num_samples * steps_per_record))
    if isinstance(algorithm, Natural):
        return natural_gradient(optax.cosine_decay_schedule(algorithm.rate, steps), algorithm.max_kl)
    return optax.adam(optax.cosine_decay_schedule(rate, steps))
