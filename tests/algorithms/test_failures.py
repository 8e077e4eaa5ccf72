"""Models that are not finite: steps are skipped and counted, and a bad record never enters a sum."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import isvi

ALGORITHMS = {
    "SGD": isvi.SGD(),
    "ISGD": isvi.ISGD(t=0.9),
    "SAG": isvi.SAG(),
    "SRA": isvi.SRA(),
    "ISAG": isvi.ISAG(),
    "ISAG-latest": isvi.ISAG(latest=3),
}


def set_up(algorithm, rows) -> tuple:
    """A model that is NaN on the rows that are 1."""
    model = isvi.Model(
        {"m": isvi.real()},
        log_prior=lambda z: -0.5 * z["m"] ** 2,
        log_likelihood=lambda z, x: jnp.where(x == 1, jnp.nan, -0.5 * (z["m"] - 1) ** 2).sum(),
    )
    dataset = isvi.Dataset.from_arrays(np.asarray(rows), batch_size=1, shuffle_seed=None)
    approximation = isvi.approximate(isvi.MeanField(), model.latents)
    estimator = isvi.Reparameterization().bind(isvi.Target(model, approximation.coordinates), approximation)
    method = isvi.build(estimator, algorithm, optax.sgd(0.05), dataset)
    return method, method.init(approximation.init(jnp.zeros(1), jnp.ones(1))), dataset


def steps(method, state, dataset, count: int) -> tuple[isvi.State, isvi.Info]:
    def step(state: isvi.State, number: jax.Array) -> tuple:
        return method.step(jax.random.fold_in(jax.random.key(5), number), state, dataset.batch(number % 4))

    return jax.jit(lambda state: jax.lax.scan(step, state, jnp.arange(count)))(state)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_bad_mini_batch_is_skipped(name):
    method, state, dataset = set_up(ALGORITHMS[name], [0, 1, 0, 0])
    state, infos = steps(method, state, dataset, 200)
    failed, fresh = np.asarray(infos.failed), np.asarray(infos.fresh)
    bad = np.arange(200) % 4 == 1
    np.testing.assert_array_equal(failed, fresh & bad)
    assert failed.any()
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(state.params))
    assert float(state.params.loc[0]) > 0.3  # it learned from the others
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(state.memory))


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_model_that_broke_is_noticed(name):
    """Good at first, then NaN for ever. Reusing the last good record must not hide it: the count of failures
    grows with every record that fails, although some steps in between reuse."""
    method, state, dataset = set_up(ALGORITHMS[name], [0, 0, 0, 0])
    state, _ = steps(method, state, dataset, 20)
    assert int(state.failures) == 0
    good = state.params
    broken = isvi.Dataset.from_arrays(np.ones(4, int), batch_size=1)
    state, infos = steps(method, state, broken, 200)
    assert int(state.failures) == int(np.asarray(infos.fresh).sum()) >= 10
    if name == "SGD":
        jax.tree.map(np.testing.assert_array_equal, state.params, good)
