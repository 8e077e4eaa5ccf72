"""How far an approximation is off along what many latents share, by the data themselves.

Independent of how it was fitted: the gradient of the ELBO in q's mean is averaged over all rows and a few mirrored
pairs, the curvature V' H V along the collective directions V comes from Hessian-vector products, and a Newton step in
their span tells how many standard deviations are left along each of its eigenvectors.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import isvi
from benchmarks.many_problems import BATCH_SIZE, ManyProblem
from isvi.families.collective import Collective

PAIRS = 6


def collective_error(problem: ManyProblem, location: np.ndarray, scale: np.ndarray) -> float:
    """The largest number of standard deviations that is left along a collective direction."""
    coordinates = problem.approximation.coordinates
    target, shared = isvi.Target(problem.model, coordinates), Collective.of(coordinates)
    dataset = isvi.Dataset.from_arrays(problem.data, BATCH_SIZE, shuffle_seed=0)
    centre, width = jnp.asarray(location), jnp.asarray(scale)
    spread = shared.spread(centre, width**-2.0)
    lengths = jnp.sqrt(shared.squares(width**-2.0, spread))
    directions = jnp.eye(shared.size) / lengths

    @jax.jit
    def summed(key: Any, dataset: Any) -> tuple[Any, Any]:
        noise = jax.random.normal(key, centre.shape)

        def gradient(z: Any, index: Any) -> Any:
            batch = dataset.batch(index)
            return jax.grad(lambda z: batch.apply(lambda rows, _: target.log_joint(z, rows, batch.scale)))(z)

        def add(sums: Any, index: Any) -> tuple[Any, None]:
            def along(one: Any) -> Any:
                moved = shared.up(one, spread)
                curved = jax.jvp(lambda z: gradient(z, index), (centre + width * noise,), (moved,))[1]
                return -shared.down(curved, spread) / lengths

            both = gradient(centre + width * noise, index) + gradient(centre - width * noise, index)
            pull = shared.down(0.5 * both, spread) / lengths
            return (sums[0] + pull, sums[1] + jax.lax.map(along, directions)), None

        zeros = (jnp.zeros(shared.size), jnp.zeros((shared.size, shared.size)))
        return jax.lax.scan(add, zeros, jnp.arange(dataset.num_batches))[0]

    sums = [summed(jax.random.key(pair), dataset) for pair in range(PAIRS)]
    pull, matrix = (np.mean([one[part] for one in sums], axis=0).astype(float) / dataset.num_batches for part in (0, 1))
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
    return float(np.abs(vectors.T @ pull / np.sqrt(np.maximum(values, 1e-6))).max())
