"""The loop around a model on the host: same steps as the compiled one, one call per record, none in between."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import isvi
from isvi.data import Dataset
from isvi.families import approximate
from isvi.fitting.running.host_loop import make_host_run
from isvi.fitting.running.loop import LoopState, make_run, make_start
from isvi.model import Bound, bind, make_target

ROWS = np.random.default_rng(0).normal(1.0, 2.0, size=25)
ALGORITHMS = [isvi.SGD(), isvi.ISGD(t=0.8), isvi.ISAG()]


def inside() -> Bound:
    """A Gaussian mean and a positive scale, in JAX."""
    model = isvi.Model(
        {"mean": isvi.real(), "scale": isvi.positive()},
        lambda z: -0.5 * z["mean"] ** 2 - z["scale"],
        lambda z, rows: jnp.sum(-0.5 * ((rows["y"] - z["mean"]) / z["scale"]) ** 2 - jnp.log(z["scale"])),
    )
    return bind(model, {"y": ROWS}, None)


def outside() -> Bound:
    """The same, with the likelihood in NumPy."""

    def value_and_grad(z: dict, rows: dict) -> tuple[Any, dict]:
        error = (rows["y"] - z["mean"]) / z["scale"]
        value = np.sum(-0.5 * error**2 - np.log(z["scale"]))
        return value, {"mean": np.sum(error) / z["scale"], "scale": np.sum(error**2 - 1) / z["scale"]}

    model = isvi.from_gradient(
        value_and_grad, inside().model.latents, log_prior=lambda z: -0.5 * z["mean"] ** 2 - z["scale"]
    )
    return bind(model, {"y": ROWS}, None)


def prepared(bound: Bound, algorithm: Any) -> tuple[Any, LoopState, Dataset]:
    dataset = Dataset.from_arrays(bound.data, 10)  # 10, 10 and 5 rows
    approximation = approximate(isvi.MeanField(), bound.model.latents)
    estimator = isvi.Reparameterization(num_samples=2).bind(
        make_target(bound.model, approximation.coordinates), approximation
    )
    method = isvi.build(estimator, algorithm, optax.adam(0.02), dataset)
    params = approximation.init(jnp.zeros(2), jnp.full(2, 0.1))
    return method, make_start(method, dataset, jax.random.key(3))(params), dataset


@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=lambda one: type(one).__name__)
def test_takes_the_steps_of_the_compiled_loop(algorithm: Any) -> None:
    """Same keys, same mini-batches, same decisions; numbers may differ by rounding, in float32 over 60 gradients."""
    method, loop, dataset = prepared(inside(), algorithm)
    expected = make_run(method, jax.random.key(3))(loop, dataset, jnp.int32(60))
    method, loop, dataset = prepared(outside(), algorithm)
    run = make_host_run(method, jax.random.key(3)).lower(loop, dataset, jnp.int32(0)).compile()
    for until in (1, 17, 60):  # however often it is interrupted
        loop = run(loop, dataset, jnp.int32(until))
    assert int(loop.state.steps) == int(expected.state.steps)
    assert int(loop.state.gradients) == int(expected.state.gradients)
    assert jnp.array_equal(loop.schedule.order, expected.schedule.order)
    for ours, theirs in zip(jax.tree.leaves(loop.state.params), jax.tree.leaves(expected.state.params), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=2e-4)
    assert loop.tally.records == expected.tally.records


def test_never_calls_the_model_during_reuse() -> None:
    bound = outside()
    method, loop, dataset = prepared(bound, isvi.ISGD(t=0.95))
    run = make_host_run(method, jax.random.key(0)).lower(loop, dataset, jnp.int32(0)).compile()
    count = bound.model.external.count
    assert count.draws == 0  # not even to compile
    loop = run(loop, dataset, jnp.int32(100))
    assert count.draws == int(loop.state.gradients) == 100
    assert int(loop.state.steps) > 5 * 50  # 50 records of 2 draws, about 20 steps each


def test_compiles_once() -> None:
    method, loop, dataset = prepared(outside(), isvi.ISGD())
    traces = 0

    def counted(*arguments: Any) -> Any:
        nonlocal traces
        traces += 1
        return method.advance(*arguments)

    run = make_host_run(method._replace(advance=counted), jax.random.key(0))
    run.lower(loop, dataset, jnp.int32(0)).compile()
    before = traces
    run(run(loop, dataset, jnp.int32(10)), dataset, jnp.int32(20))
    assert traces == before


def test_exception_surfaces_with_its_traceback_and_the_state() -> None:
    calls = 0

    def dies(z: np.ndarray) -> tuple[float, np.ndarray]:
        nonlocal calls
        calls += 1
        if calls > 50:
            raise ConnectionError("gone")
        return -0.5 * float(z @ z), -z

    with pytest.raises(ConnectionError, match="gone") as caught:
        isvi.fit(isvi.from_gradient(dies, 2, check_gradient=False), algorithm=isvi.ISGD(), budget=500)
    assert caught.traceback[-1].name == "dies"
    assert "49 model gradients" in "".join(caught.value.__notes__)
    left = caught.value.fit  # type: ignore[attr-defined]
    assert left.gradients == 49
    assert not left.status.good
    assert np.isfinite(left.mean()["z"]).all()


def test_answers_that_are_not_finite_are_skipped() -> None:
    def sometimes(z: np.ndarray) -> tuple[float, np.ndarray]:
        return (np.nan if z[0] > 1.0 else -0.5 * float(z @ z)), -z

    fit = isvi.fit(isvi.from_gradient(sometimes, 1), algorithm=isvi.SGD(), budget=300)
    assert fit.status.good
    assert fit.skipped > 0
    assert np.isfinite(fit.mean()["z"]).all()
