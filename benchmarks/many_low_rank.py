"""Are the sds of shared latents right beyond a thousand latents, with independent Gaussians and with ``LowRank``?

In the hierarchical regressions of ``many_problems`` no effect touches another: the curvature of all rows is an arrow,
and its inverse is known exactly. It is averaged over mirrored draws of q. Errors are those of the intercept, slopes
and scale. Run with ``python -m benchmarks.many_low_rank --problems hierarchical-1000,hierarchical-10000``.
"""

import argparse
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import isvi
from benchmarks.many_problems import BATCH_SIZE, PROBLEMS, ManyProblem
from isvi.families import Family

PAIRS = 16
FAMILIES: dict[str, Family] = {
    "MeanField": isvi.MeanField(),
    "LowRank(1)": isvi.LowRank(1),
    "LowRank(5)": isvi.LowRank(5),
}
HEADER = (
    "| problem (latents) | family | seed | status | gradients | CPU s | ELBO | off, sds | shared sds | effects' sds |"
)


def exact(problem: ManyProblem, draws: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """How far a Newton step would go in every shared latent, and the sds of these and of the effects."""
    dataset = isvi.Dataset.from_arrays(problem.data, BATCH_SIZE, shuffle_seed=0)
    coordinates = problem.approximation.coordinates
    target = isvi.Target(problem.model, coordinates)
    effects = next(one for one in coordinates.entries if one.name == "effects")
    assert effects.stop == coordinates.size
    shared = effects.start
    axes = jnp.eye(shared, coordinates.size)
    along = jnp.concatenate([axes, jnp.zeros((1, coordinates.size)).at[0, shared:].set(1)])

    @jax.jit
    def summed(z: Any, dataset: Any) -> Any:
        def add(sums: Any, index: Any) -> tuple[Any, None]:
            batch = dataset.batch(index)

            def slope(z: Any) -> Any:
                return jax.grad(lambda z: batch.apply(lambda rows, _: target.log_joint(z, rows, batch.scale)))(z)

            curved = jax.lax.map(lambda one: -jax.jvp(slope, (z,), (one,))[1], along)
            return (sums[0] + slope(z), sums[1] + curved), None

        zeros = (jnp.zeros(coordinates.size), jnp.zeros((shared + 1, coordinates.size)))
        return jax.lax.scan(add, zeros, jnp.arange(dataset.num_batches))[0]

    found = [summed(jnp.asarray(one), dataset) for one in draws]
    gradient, rows = (np.mean([one[part] for one in found], axis=0).astype(float) for part in (0, 1))
    gradient, rows = gradient / dataset.num_batches, rows / dataset.num_batches
    corner, arms = rows[:shared, :shared], rows[:shared, shared:]
    own = rows[shared, shared:]  # what one effect does to another is nothing
    inverse = np.linalg.inv(corner - (arms / own) @ arms.T)
    step = inverse @ (gradient[:shared] - (arms / own) @ gradient[shared:])
    variances = 1 / own + np.einsum("ij,ik,kj->j", arms / own, inverse, arms / own)
    return step, np.sqrt(np.diagonal(inverse)), np.sqrt(variances)


def judged(problem: ManyProblem, name: str, seed: int) -> str:
    """A row of the table."""
    started = time.process_time()
    fit = isvi.fit(problem.model, problem.data, family=FAMILIES[name], seed=seed, progress=False)
    seconds = time.process_time() - started
    draws = fit.approximation.draw(jax.random.key(seed), fit.params, 2 * PAIRS, antithetic=True)
    step, sds, others = exact(problem, np.asarray(draws))
    ended = fit.status.kind + ", handed over" * ("handed over" in fit.status.message)
    found = np.asarray(fit.approximation.scale(fit.params), float)
    ratio, rest = found[: len(sds)] / sds, found[len(sds) :] / others
    cells = [
        f"{problem.name} ({len(found):,})",
        name,
        str(seed),
        ended,
        f"{fit.gradients:,}",
        f"{seconds:.1f}",
    ]
    cells += [f"{fit.elbo(20).value:,.1f}", f"{np.abs(step / sds).max():.2f}", f"{ratio.min():.2f} - {ratio.max():.2f}"]
    return f"| {' | '.join(cells)} | {np.quantile(rest, 0.01):.2f} - {np.quantile(rest, 0.99):.2f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--problems", default="hierarchical-1000,hierarchical-10000")
    parser.add_argument("--families", default=",".join(FAMILIES))
    parser.add_argument("--seeds", type=int, default=1)
    chosen = parser.parse_args()
    print(HEADER, "|" + " --- |" * (HEADER.count("|") - 1), sep="\n")
    for problem in (PROBLEMS[name]() for name in chosen.problems.split(",")):
        for name in chosen.families.split(","):
            for seed in range(chosen.seeds):
                print(judged(problem, name, seed), flush=True)


if __name__ == "__main__":
    main()
