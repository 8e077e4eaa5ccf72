"""Rivals by one rule for all, and the best full-rank Gaussian, for models in NumPyro.

NumPyro's AutoNormal and AutoMultivariateNormal: 10,000 steps of Adam, falling to zero by a cosine, the best of three
rates by the ELBO at the end (all three are counted). Multi-path Pathfinder: eight paths from NumPyro's initial points,
and draws picked by smoothed weights. The best Gaussian: AutoMultivariateNormal from the means of the reference, with 16
draws per step.
"""

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from numpyro.infer import SVI, Trace_ELBO, init_to_uniform, init_to_value
from numpyro.infer.autoguide import AutoMultivariateNormal, AutoNormal
from numpyro.infer.util import initialize_model

from benchmarks.models.case import Case
from benchmarks.models.measure import Result, of_draws
from benchmarks.models.reference import Reference, arguments
from benchmarks.models.report import BEST_GAUSSIAN

STEPS, RATES = 10_000, (0.03, 0.01, 0.003)
BEST_STEPS, BEST_DRAWS, BEST_RATE = 10_000, 16, 0.01
DRAWS, DRAWS_FOR_ELBO = 10_000, 500
PATHS, DRAWS_PER_PATH, LONGEST_PATH = 8, 1000, 100
"""The gradients told for Pathfinder are the most it may have taken: it does not say."""


def run_rivals(case: Case, reference: Reference, only: str = "") -> Iterator[Result]:
    """One after the other, those whose names contain ``only``; what fails is told as failed."""
    methods = {
        BEST_GAUSSIAN: _best_gaussian,
        "AutoMultivariateNormal": lambda *given: _svi(AutoMultivariateNormal, *given),
        "AutoNormal": lambda *given: _svi(AutoNormal, *given),
        "Pathfinder": _pathfinder,
    }
    for name in filter(lambda one: only in one, methods):
        method, result = methods[name], Result("NumPyro", case.name, name, 0, "finished")
        started = time.process_time()
        try:
            draws, gradients = method(case, reference)
            result = replace(result, gradients=gradients, errors=of_draws(reference, draws))
        except Exception as error:  # a rival that fails is part of the table
            result = replace(result, status="failed", message=f"{type(error).__name__}: {str(error)[:200]}")
        yield replace(result, seconds=time.process_time() - started)


def _best_gaussian(case: Case, reference: Reference) -> tuple[dict[str, Any], int]:
    means = {name: jnp.asarray(numbers["mean"], jnp.float32) for name, numbers in reference.latents.items()}
    guide = AutoMultivariateNormal(case.model, init_loc_fn=init_to_value(values=means), init_scale=0.02)
    params, _ = _optimised(case, guide, BEST_RATE, BEST_STEPS, BEST_DRAWS)
    return guide.sample_posterior(jax.random.key(1), params, sample_shape=(DRAWS,)), BEST_STEPS * BEST_DRAWS


def _svi(kind: Any, case: Case, reference: Reference) -> tuple[dict[str, Any], int]:
    best: tuple[float, Any, Any] = (-np.inf, None, None)
    for rate in RATES:
        guide = kind(case.model)
        params, elbo = _optimised(case, guide, rate, STEPS, 1)
        if best[1] is None or elbo > best[0]:
            best = (elbo, guide, params)
    _, guide, params = best
    return guide.sample_posterior(jax.random.key(1), params, sample_shape=(DRAWS,)), STEPS * len(RATES)


def _optimised(case: Case, guide: Any, rate: float, steps: int, draws: int) -> tuple[Any, float]:
    """The parameters, and the ELBO there; minus infinity if it is not a number."""
    given = arguments(case)
    schedule = optax.cosine_decay_schedule(rate, steps)
    svi = SVI(case.model, guide, optax.adam(schedule), Trace_ELBO(num_particles=draws))
    params = svi.run(jax.random.key(0), steps, **given, progress_bar=False).params
    elbo = -float(Trace_ELBO(num_particles=DRAWS_FOR_ELBO).loss(jax.random.key(2), params, case.model, guide, **given))
    return params, elbo if np.isfinite(elbo) else -np.inf


def _pathfinder(case: Case, reference: Reference) -> tuple[dict[str, Any], int]:
    from blackjax.vi import multipathfinder
    from jax.flatten_util import ravel_pytree

    given = arguments(case)
    starts = [
        initialize_model(key, case.model, init_strategy=init_to_uniform, model_kwargs=given)
        for key in jax.random.split(jax.random.key(0), PATHS)
    ]
    _, unravel = ravel_pytree(starts[0].param_info.z)
    positions = jnp.stack([ravel_pytree(start.param_info.z)[0] for start in starts])

    def log_density(z: jax.Array) -> jax.Array:
        return -starts[0].potential_fn(unravel(z))

    run = jax.jit(
        lambda key, at: multipathfinder.multi_approximate(key, log_density, at, DRAWS_PER_PATH, maxiter=LONGEST_PATH)
    )
    state, _ = run(jax.random.key(1), positions)
    log_weights, _ = multipathfinder.psis_weights(state)
    weights = np.nan_to_num(np.exp(np.asarray(log_weights, float)))
    chosen = np.random.default_rng(0).choice(len(weights), DRAWS, p=weights / weights.sum())
    draws = jnp.reshape(state.samples, (len(weights), -1))[chosen]
    return jax.vmap(lambda z: starts[0].postprocess_fn(unravel(z)))(draws), PATHS * LONGEST_PATH
