"""Model gradients until a Gaussian with full covariance has its means right, on the reference posteriors.

isvi's default with ``FullRank``, batch and match, and Pathfinder. A gradient is of one mini-batch, as ``isvi.fit``
forms them (up to 1,000 rows); one of all rows counts as many. Right is within 0.1 reference standard deviations for
the worst parameter, from then on. Run with ``python -m benchmarks.full_rank --data <reference posteriors>``.
"""

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax

import isvi
from benchmarks.batch_and_match import Gaussian, rounds
from benchmarks.posteriordb.reference import Posterior, find

GOOD = 0.1
BUDGET = 3_000
BATCH = 16
"""Draws per round of batch and match."""
CHECK_EVERY = 20
PATHFINDER_ITERATIONS = 100
NOISE = np.random.default_rng(0).normal(size=(2_000, 64))


@dataclass(frozen=True)
class Setting:
    """A posterior in unconstrained coordinates."""

    posterior: Posterior
    approximation: isvi.Approximation
    target: isvi.Target
    dataset: isvi.Dataset
    start: np.ndarray

    @classmethod
    def of(cls, posterior: Posterior, seed: int) -> "Setting":
        problem = posterior.problem
        approximation = isvi.approximate(isvi.FullRank(), problem.model.latents)
        rows = None if problem.rows is None else min(1_000, len(next(iter(problem.rows.values()))))
        return cls(
            posterior,
            approximation,
            isvi.Target(problem.model, approximation.coordinates),
            isvi.Dataset.from_arrays(problem.rows, rows, shuffle_seed=seed),
            0.01 * np.random.default_rng(seed).normal(size=approximation.dim),
        )

    def error(self, q: Gaussian) -> float:
        """Of the worst parameter's mean, in reference standard deviations; mirrored draws, the same for all."""
        noise = NOISE[:, : len(q.mean)] @ np.linalg.cholesky(q.covariance).T
        draws = jnp.asarray(np.concatenate([q.mean + noise, q.mean - noise]), jnp.float32)
        values = {name: np.asarray(value, float) for name, value in self.constrain(draws).items()}
        report = self.posterior.problem.model.report
        mean = self.posterior.pick(values if report is None else report(values)).mean(axis=0)
        return float(np.max(np.abs(mean - self.posterior.mean) / self.posterior.sd))

    @cached_property
    def constrain(self) -> Callable[[jax.Array], dict[str, jax.Array]]:
        return jax.jit(self.approximation.coordinates.constrain)


Trace = list[tuple[int, float]]
"""(gradients, error) along a run."""


def gradients_until_good(trace: Trace) -> float:
    """From where on all errors are small; infinite if the last one is not."""
    needed = np.inf
    for gradients, error in reversed(trace):
        if not error < GOOD:
            break
        needed = gradients
    return needed


def run_isvi(setting: Setting, seed: int) -> Trace:
    estimator = isvi.Reparameterization(num_samples=2, antithetic=True)
    bound = estimator.bind(setting.target, setting.approximation)
    method = isvi.build(bound, isvi.Auto(), optax.sgd(1.0), setting.dataset)  # Auto's gradient is the step itself
    dataset, key = setting.dataset, jax.random.key(seed)

    @jax.jit
    def some_steps(state: isvi.State, dataset: isvi.Dataset) -> isvi.State:
        def step(_: int, state: isvi.State) -> isvi.State:
            batch = dataset.batch(state.steps % dataset.num_batches)
            moved, _ = method.step(jax.random.fold_in(key, state.steps), state, batch)
            done = method.converged(state) | method.gave_up(state)
            return jax.tree.map(lambda old, new: jnp.where(done, old, new), state, moved)

        return jax.lax.fori_loop(0, CHECK_EVERY // 2, step, state)

    location = jnp.asarray(setting.start, jnp.float32)
    state, trace, gradients = method.init(setting.approximation.init(location, jnp.full_like(location, 0.001))), [], -1
    while gradients < int(state.gradients) < BUDGET:
        gradients = int(state.gradients)
        state = some_steps(state, dataset)
        params = state.params
        cholesky = np.asarray(params.cholesky[0], float) if hasattr(params, "cholesky") else None
        covariance = np.diag(np.exp(2 * params.log_scale)) if cholesky is None else cholesky @ cholesky.T
        trace.append((int(state.gradients), setting.error(Gaussian(np.asarray(params.loc, float), covariance))))
    return trace


def run_batch_and_match(setting: Setting, seed: int, constant: bool, warm: bool) -> Trace:
    """From a standard Gaussian, or from Pathfinder's last Gaussian, whose gradients are counted."""
    per_draw = setting.dataset.num_batches
    start, spent = Gaussian(setting.start, np.eye(len(setting.start))), 0
    if warm:
        spent, start = pathfinder_path(setting, seed)[-1]
    with jax.enable_x64(True):
        dataset = jax.tree.map(jnp.asarray, setting.dataset)
        gradient = jax.jit(jax.grad(lambda draws: setting.target.exact_values(draws, dataset).sum()))

        def scores(draws: np.ndarray) -> np.ndarray:
            return np.asarray(gradient(jnp.asarray(draws)))

        trace: Trace = []
        for q in _finite(rounds(scores, start, BATCH, np.random.default_rng(seed), constant)):
            spent += BATCH * per_draw
            if spent > BUDGET:
                return trace
            trace.append((spent, setting.error(q)))
    return [*trace, (BUDGET, np.inf)]


def _finite(sequence: Iterator[Gaussian]) -> Iterator[Gaussian]:
    """Until something is not a finite number, or no covariance."""
    try:
        for q in sequence:
            if not (np.all(np.isfinite(q.mean)) and np.all(np.isfinite(q.covariance))):
                return
            yield q
    except np.linalg.LinAlgError:
        return


def pathfinder_path(setting: Setting, seed: int) -> list[tuple[int, Gaussian]]:
    """BlackJAX's; an iteration counts as one gradient of all rows, its line search and draws as none. Of the Gaussians
    so far, always the one with the best ELBO."""
    from blackjax.vi import pathfinder

    with jax.enable_x64(True):
        dataset = jax.tree.map(jnp.asarray, setting.dataset)
        path = jax.jit(
            lambda key: (
                pathfinder.approximate(
                    key,
                    lambda z: setting.target.exact_values(z[None], dataset)[0],
                    jnp.asarray(setting.start),
                    20,
                    maxiter=PATHFINDER_ITERATIONS,
                    ftol=1e-10,
                )[1].path
            )
        )(jax.random.key(seed))
        path = jax.device_get(path)
    found, best = [], -np.inf
    for index in range(int(np.sum(np.isfinite(path.elbo)))):
        covariance = np.diag(path.alpha[index]) + path.beta[index] @ path.gamma[index] @ path.beta[index].T
        if path.elbo[index] < best or np.linalg.eigvalsh(covariance).min() <= 0:
            continue
        best = path.elbo[index]
        mean = path.position[index] - covariance @ path.grad_position[index]
        found.append(((index + 1) * setting.dataset.num_batches, Gaussian(mean, covariance)))
    return found


def run_pathfinder(setting: Setting, seed: int) -> Trace:
    return [(gradients, setting.error(q)) for gradients, q in pathfinder_path(setting, seed)]


METHODS = {
    "isvi FullRank": run_isvi,
    "batch and match": partial(run_batch_and_match, constant=False, warm=False),
    "constant rate": partial(run_batch_and_match, constant=True, warm=False),
    "from Pathfinder": partial(run_batch_and_match, constant=False, warm=True),
    "from Pathfinder, constant rate": partial(run_batch_and_match, constant=True, warm=True),
    "Pathfinder": run_pathfinder,
}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--data", type=Path, required=True)
    options.add_argument("--only")
    options.add_argument("--seeds", type=int, default=2)
    chosen = options.parse_args()
    print("| posterior | entries | " + " | ".join(METHODS) + " |")
    print("| --- | --- |" + " --- |" * len(METHODS), flush=True)
    for posterior in find(chosen.data, chosen.only):
        cells = []
        for run in METHODS.values():
            traces = [run(Setting.of(posterior, seed), seed) for seed in range(chosen.seeds)]
            needed = " / ".join(f"{gradients_until_good(trace):.0f}" for trace in traces)
            final = " / ".join(f"{trace[-1][1] if trace else np.inf:.2f}" for trace in traces)
            cells.append(f"{needed} ({final})")
        dim = Setting.of(posterior, 0).approximation.dim
        print(f"| {posterior.name} | {dim} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
