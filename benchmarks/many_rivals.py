"""Rivals for many latents, hand-written and compiled as one loop: Adam on independent Gaussians, and IVON.

Both see the mini-batches of ``isvi.fit`` in its fixed order and start where it does.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

import isvi
from benchmarks.many_problems import BATCH_SIZE, ManyProblem

Moments = tuple[np.ndarray, np.ndarray]
"""Locations and standard deviations."""


def _bound(problem: ManyProblem, seed: int) -> tuple[Any, Any, np.ndarray]:
    approximation = problem.approximation
    dataset = isvi.Dataset.from_arrays(problem.data, BATCH_SIZE, shuffle_seed=seed)
    start = 0.01 * np.random.default_rng(seed).normal(size=approximation.dim)
    return isvi.Target(problem.model, approximation.coordinates), dataset, start.astype(np.float32)


def _followed(step: Callable[[Any, Any, Any], Any], state: Any, dataset: Any, steps: int, seed: int) -> Any:
    """``steps`` steps of ``step(state, number, batch)`` in one compiled loop."""
    order = jnp.asarray(np.random.default_rng(seed).permutation(dataset.num_batches))

    @jax.jit
    def run(state: Any, dataset: Any) -> Any:
        def body(number: Any, state: Any) -> Any:
            return step(state, number, dataset.batch(order[number % len(order)]))

        return jax.lax.fori_loop(0, steps, body, state)

    return jax.block_until_ready(run(state, dataset))


def adam(problem: ManyProblem, gradients: int, rate: float, seed: int = 0, around: Moments | None = None) -> Moments:
    """Independent Gaussians by Adam, a draw a step, the rate falling to zero along a cosine."""
    target, dataset, start = _bound(problem, seed)
    location, scale = (start, np.full_like(start, 0.1)) if around is None else around
    optimizer = optax.adam(optax.cosine_decay_schedule(rate, gradients))
    params = (jnp.asarray(location), jnp.log(jnp.asarray(scale)))

    def step(state: Any, number: Any, batch: Any) -> Any:
        params, inner = state
        noise = jax.random.normal(jax.random.fold_in(jax.random.key(seed), number), params[0].shape)

        def descent(params: Any) -> Any:
            z = params[0] + jnp.exp(params[1]) * noise
            return -batch.apply(lambda rows, _: target.log_joint(z, rows, batch.scale)) - params[1].sum()

        updates, inner = optimizer.update(jax.grad(descent)(params), inner, params)
        return optax.apply_updates(params, updates), inner

    (location, log_scale), _ = _followed(step, (params, optimizer.init(params)), dataset, gradients, seed)
    return np.asarray(location), np.exp(np.asarray(log_scale))


def ivon(problem: ManyProblem, gradients: int, rate: float, seed: int = 0) -> Moments:
    """IVON (Shen et al. 2024): natural-gradient steps with the curvature by reparameterisation, a draw a step. Its
    settings are the paper's, but for the rate; the model's own prior takes the place of weight decay."""
    target, dataset, start = _bound(problem, seed)
    beta1, beta2, first = 0.9, 1 - 1e-4, float(len(start))
    schedule = optax.cosine_decay_schedule(rate, gradients)
    rows = dataset.size

    def step(state: Any, number: Any, batch: Any) -> Any:
        location, momentum, curvature = state
        scale = (rows * curvature) ** -0.5
        noise = jax.random.normal(jax.random.fold_in(jax.random.key(seed), number), location.shape)
        z = location + scale * noise
        log_joint = lambda z: batch.apply(lambda rows, _: target.log_joint(z, rows, batch.scale))  # noqa: E731
        gradient = -jax.grad(log_joint)(z) / rows
        seen = gradient * noise / scale
        change = seen - curvature
        curvature = curvature + (1 - beta2) * change + 0.5 * ((1 - beta2) * change) ** 2 / curvature
        momentum = beta1 * momentum + (1 - beta1) * gradient
        corrected = momentum / (1 - beta1 ** (number + 1.0))
        return location - schedule(number) * corrected / curvature, momentum, curvature

    del first
    state = (jnp.asarray(start), jnp.zeros_like(start), jnp.full_like(start, 0.1))
    location, _, curvature = _followed(step, state, dataset, gradients, seed)
    return np.asarray(location), (rows * np.asarray(curvature)) ** -0.5


def best_of(
    run: Callable[..., Moments], rates: list[float], score: Callable[[Moments], float]
) -> tuple[float, Moments]:
    """The rate whose result scores highest, and that result."""
    tried = [(rate, run(rate=rate)) for rate in rates]
    return max(tried, key=lambda one: score(one[1]))


__all__ = ["adam", "best_of", "ivon", "partial"]
