"""What isvi is compared with: NumPyro's SVI, tuned, and BlackJAX's Pathfinder. On all rows at once, in single precision
as isvi is, from where isvi starts."""

import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import optax
from jax import Array
from numpyro.distributions import ImproperUniform
from numpyro.infer import SVI, Trace_ELBO
from numpyro.infer.autoguide import AutoMultivariateNormal, AutoNormal
from numpyro.infer.initialization import init_to_value
from numpyro.optim import optax_to_numpyro

import isvi
from benchmarks.posteriordb.measure import DRAWS_FOR_K_HAT, Result, k_hat, log_joint
from benchmarks.posteriordb.models import Problem
from benchmarks.posteriordb.reference import Posterior

STEPS = 50_000
RATES = (1.0, 0.3, 0.1, 0.03, 0.01, 0.003)
GUIDES = {"mean field": AutoNormal, "full rank": AutoMultivariateNormal}
DRAWS_FOR_MOMENTS = 10_000
DRAWS_FOR_ELBO = 1_000


def run_numpyro(posterior: Posterior, family: str, seed: int) -> Result:
    """Adam with a cosine schedule, at the rate whose final ELBO is best; all rates run side by side. Counted and timed
    is the winner's share: the search for the rate is free."""
    problem = posterior.problem
    values = {name: latent.transform(jnp.zeros(latent.unconstrained_shape)) for name, latent in _latents(problem)}
    guide = GUIDES[family](_numpyro_model(problem), init_loc_fn=init_to_value(values=values))

    def train(rate: Array, key: Array) -> tuple[Any, Array]:
        adam = optax_to_numpyro(optax.adam(lambda step: rate * 0.5 * (1 + jnp.cos(jnp.pi * step / STEPS))))
        svi = SVI(_numpyro_model(problem), guide, adam, Trace_ELBO())
        state = svi.init(key)
        state, _ = jax.lax.scan(lambda state, _: (svi.update(state)[0], None), state, length=STEPS)
        params = svi.get_params(state)
        elbo = -Trace_ELBO(num_particles=DRAWS_FOR_ELBO).loss(key, params, _numpyro_model(problem), guide)
        return params, jnp.where(jnp.isfinite(elbo), elbo, -jnp.inf)

    key = jax.random.key(seed)
    (params, elbos), seconds, compile_seconds = _timed(jax.vmap(train, (0, None)), jnp.array(RATES), key)
    best = int(jnp.argmax(elbos))
    params = jax.tree.map(lambda leaf: leaf[best], params)
    q = guide.get_posterior(params) if family == "full rank" else None
    location, scale = _moments(guide, params, q, problem)
    return _result(
        posterior, "NumPyro SVI", family, seed, location, scale,
        gradients=STEPS, seconds=seconds / len(RATES), compile_seconds=compile_seconds, status=f"rate {RATES[best]}",
    )  # fmt: skip


def run_pathfinder(posterior: Posterior, family: str, seed: int) -> Result:
    """The best normal along one L-BFGS path from where isvi starts."""
    from blackjax.vi import pathfinder

    problem = posterior.problem
    approximation = isvi.approximate(isvi.MeanField(), problem.model.latents)
    target = isvi.Target(problem.model, approximation.coordinates)
    start = 0.01 * jax.random.normal(jax.random.key(seed), (approximation.dim,))

    def log_density(z: Array) -> Array:
        return target.log_joint(z, problem.rows, 1.0)

    def run(key: Array, start: Array) -> tuple[Any, Any]:
        state, info = pathfinder.approximate(key, log_density, start, num_samples=200, maxiter=500)
        draws, log_q = pathfinder.sample(key, state, DRAWS_FOR_MOMENTS)
        return (draws, log_q), info.path

    ((draws, log_q), path), seconds, compile_seconds = _timed(run, jax.random.key(seed), start)
    moved = jnp.any(jnp.diff(path.position, axis=0) != 0, axis=1)
    return _from_draws(
        posterior, "Pathfinder", "low rank", seed, draws, log_q,
        gradients=int(moved.sum()) + 1, seconds=seconds, compile_seconds=compile_seconds, status="one path",
    )  # fmt: skip


def _latents(problem: Problem) -> list[tuple[str, isvi.Latent]]:
    return list(problem.model.latents.items())


def _numpyro_model(problem: Problem) -> Callable[[], None]:
    """The same densities, as NumPyro factors."""

    def model() -> None:
        z = {
            name: numpyro.sample(name, ImproperUniform(latent.constraint, (), latent.shape))
            for name, latent in _latents(problem)
        }
        numpyro.factor("prior", problem.model.log_prior(z))
        if problem.model.log_likelihood is not None:
            numpyro.factor("likelihood", problem.model.log_likelihood(z, problem.rows))

    return model


def _moments(guide: Any, params: Any, q: Any, problem: Problem) -> tuple[Array, Array]:
    """Location and Cholesky factor of a guide's Gaussian, in the order of the latents."""
    if q is not None:
        # AutoMultivariateNormal lays latents out in the order of the model's sites.
        return q.mean, q.scale_tril
    names = [name for name, _ in _latents(problem)]
    loc, scale = (jnp.concatenate([jnp.ravel(params[f"{n}_auto_{part}"]) for n in names]) for part in ("loc", "scale"))
    return loc, jnp.diag(scale)


def _result(
    posterior: Posterior, method: str, family: str, seed: int, location: Array, factor: Array, **counts: Any
) -> Result:
    """A Gaussian in unconstrained space, measured by its draws."""
    half = np.random.default_rng(seed).normal(size=(DRAWS_FOR_MOMENTS // 2, location.shape[0]))
    noise = np.concatenate([half, -half])
    draws = np.asarray(location) + noise @ np.asarray(factor, float).T
    log_q = -0.5 * (noise**2).sum(axis=1) - np.log(np.diagonal(np.asarray(factor, float))).sum()
    return _from_draws(posterior, method, family, seed, draws, log_q, **counts)


def _from_draws(
    posterior: Posterior, method: str, family: str, seed: int, draws: Any, log_q: Any, **counts: Any
) -> Result:
    problem = posterior.problem
    approximation = isvi.approximate(isvi.MeanField(), problem.model.latents)
    log_p = log_joint(problem, approximation, draws[:DRAWS_FOR_K_HAT])
    values = jax.device_get(approximation.coordinates.constrain(jnp.asarray(draws)))
    values = values if problem.model.report is None else problem.model.report(values)
    chosen = posterior.pick(values)
    return Result(
        posterior, method, family, seed,
        mean=chosen.mean(axis=0), sd=chosen.std(axis=0, ddof=1),
        k_hat=k_hat(log_p - np.asarray(log_q, float)[:DRAWS_FOR_K_HAT]), **counts,
    )  # fmt: skip


def _timed(function: Callable, *arguments: Any) -> tuple[Any, float, float]:
    """The answer, seconds of running, seconds of compiling."""
    started = time.perf_counter()
    compiled = jax.jit(function).lower(*arguments).compile()
    ready = time.perf_counter()
    answer = jax.block_until_ready(compiled(*arguments))
    return answer, time.perf_counter() - ready, ready - started
