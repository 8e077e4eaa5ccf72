"""Rivals for many latents, hand-written and compiled as one loop: Adam on independent Gaussians, and IVON.

Both see mini-batches of the same size in one fixed order, a draw a step, and start near zero.
"""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

import isvi
from benchmarks.many_problems import BATCH_SIZE, ManyProblem


class Found(NamedTuple):
    """Independent Gaussians, and the CPU seconds that it took, compiling included."""

    location: np.ndarray
    scale: np.ndarray
    seconds: float

    @property
    def finite(self) -> bool:
        return bool(np.isfinite(self.location).all() and np.isfinite(self.scale).all())


def adam(problem: ManyProblem, gradients: int, rate: float, seed: int = 0) -> Found:
    """The rate falls to zero along a cosine."""
    target, dataset, start = _bound(problem, seed)
    optimizer = optax.adam(optax.cosine_decay_schedule(rate, gradients))
    params = (jnp.asarray(start), jnp.full_like(start, np.log(0.1)))

    def step(state: Any, number: Any, batch: Any) -> Any:
        params, inner = state
        noise = jax.random.normal(jax.random.fold_in(jax.random.key(seed), number), params[0].shape)

        def descent(params: Any) -> Any:
            z = params[0] + jnp.exp(params[1]) * noise
            return -batch.apply(lambda rows, _: target.log_joint(z, rows, batch.scale)) - params[1].sum()

        updates, inner = optimizer.update(jax.grad(descent)(params), inner, params)
        return optax.apply_updates(params, updates), inner

    ((location, log_scale), _), seconds = _followed(step, (params, optimizer.init(params)), dataset, gradients, seed)
    return Found(np.asarray(location), np.exp(np.asarray(log_scale)), seconds)


def ivon(problem: ManyProblem, gradients: int, rate: float, seed: int = 0) -> Found:
    """Shen et al. (2024), with the paper's settings but for the rate, which falls to zero along a cosine; the model's
    own prior takes the place of weight decay. Curvatures are per row."""
    target, dataset, start = _bound(problem, seed)
    keep, slowly, rows = 0.9, 1e-4, dataset.size
    schedule = optax.cosine_decay_schedule(rate, gradients)

    def step(state: Any, number: Any, batch: Any) -> Any:
        location, momentum, curvature = state
        scale = (rows * curvature) ** -0.5
        noise = jax.random.normal(jax.random.fold_in(jax.random.key(seed), number), location.shape)

        def descent(z: Any) -> Any:
            return -batch.apply(lambda part, _: target.log_joint(z, part, batch.scale)) / rows

        gradient = jax.grad(descent)(location + scale * noise)
        change = slowly * (gradient * noise / scale - curvature)
        curvature = curvature + change + 0.5 * change**2 / curvature
        momentum = keep * momentum + (1 - keep) * gradient
        corrected = momentum / (1 - keep ** (number + 1.0))
        return location - schedule(number) * corrected / curvature, momentum, curvature

    state = (jnp.asarray(start), jnp.zeros_like(start), jnp.full_like(start, 0.1))
    (location, _, curvature), seconds = _followed(step, state, dataset, gradients, seed)
    return Found(np.asarray(location), (rows * np.asarray(curvature)) ** -0.5, seconds)


RIVALS: dict[str, tuple[Callable[..., Found], tuple[float, ...]]] = {
    "Adam": (adam, (0.003, 0.01, 0.03, 0.1)),
    "IVON": (ivon, (0.01, 0.03, 0.1, 0.3)),
}
"""With the rates that each is tuned over."""


def _bound(problem: ManyProblem, seed: int) -> tuple[Any, Any, np.ndarray]:
    dataset = isvi.Dataset.from_arrays(problem.data, BATCH_SIZE, shuffle_seed=seed)
    start = 0.01 * np.random.default_rng(seed).normal(size=problem.approximation.dim)
    return isvi.Target(problem.model, problem.approximation.coordinates), dataset, start.astype(np.float32)


def _followed(
    step: Callable[[Any, Any, Any], Any], state: Any, dataset: Any, steps: int, seed: int
) -> tuple[Any, float]:
    """The state after so many of ``step(state, number, batch)``, in one compiled loop."""
    order = jnp.asarray(np.random.default_rng(seed).permutation(dataset.num_batches))

    def run(state: Any, dataset: Any) -> Any:
        def body(number: Any, state: Any) -> Any:
            return step(state, number, dataset.batch(order[number % len(order)]))

        return jax.lax.fori_loop(0, steps, body, state)

    started = time.process_time()
    state = jax.block_until_ready(jax.jit(run)(state, dataset))
    return state, time.process_time() - started
