"""Fits of data larger than memory: the right answer, the same bits after a cut, and no loss when data are bad."""

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
import pytest
from support import files, regression

import isvi
from isvi.data import Stream
from isvi.data.reader import THREAD_NAME
from isvi.fitting.running.loop import LoopState, make_run, make_start, own_copy

BATCH_SIZE = 9
"""14 full mini-batches of the regression's 130 rows, in windows of 4, and one of 4 rows."""
SLOW = pytest.mark.slow


def reader_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith(THREAD_NAME)]


@pytest.mark.parametrize("kind", [files.KINDS[0], *(pytest.param(kind, marks=SLOW) for kind in files.KINDS[1:])])
def test_the_posterior_is_the_one_of_data_in_memory(kind: str, tmp_path: Path) -> None:
    source = files.make_source(kind, tmp_path, regression.data())
    fit = isvi.fit(regression.model(), source, batch_size=BATCH_SIZE, budget=4000, progress=False)
    assert isinstance(fit.dataset, Stream)
    assert fit.dataset.num_windows == 4
    assert reader_threads() == []
    # With five mini-batches of 30 rows the same fit in memory stops at gaps of up to 0.05 nats; a mini-batch that is
    # left out, or counted twice, moves the optimum by several tenths.
    assert regression.gap(fit.params) < 0.1


def test_the_elbo_is_that_of_all_rows(tmp_path: Path) -> None:
    source = files.make_source("parquet", tmp_path, regression.data())
    fit = isvi.fit(regression.model(), source, batch_size=BATCH_SIZE, algorithm=isvi.SGD(), budget=20, progress=False)
    in_memory = replace(fit, dataset=isvi.Dataset.from_arrays(regression.data()))
    # The same draws and the same rows in another order, in float64.
    assert fit.elbo().value == pytest.approx(in_memory.elbo().value, rel=1e-12)
    assert reader_threads() == []


def advanced(run: Any, loop: LoopState, stream: Stream, key: jax.Array, until: int) -> LoopState:
    """What the driver does."""
    while int(loop.state.gradients) < until:
        loop = run(loop, stream.resident(loop.schedule), jnp.int32(until))
    stream.release()
    return loop


@pytest.mark.parametrize(
    "algorithm", [pytest.param(isvi.ISGD(), marks=SLOW, id="ISGD"), pytest.param(isvi.ISAG(), id="ISAG")]
)
def test_a_run_that_is_cut_and_continued_gives_the_same_bits(algorithm: Any, tmp_path: Path) -> None:
    key = jax.random.key(3)

    def new_stream() -> Stream:
        return Stream(files.make_source("parquet", tmp_path, regression.data()), BATCH_SIZE, 8)

    approximation = isvi.approximate(isvi.MeanField(), regression.model().latents)
    estimator = isvi.Reparameterization().bind(
        isvi.Target(regression.model(), approximation.coordinates), approximation
    )
    method = isvi.build(estimator, algorithm, optax.adam(0.01), new_stream())
    run = make_run(method, key)
    start = make_start(method, new_stream(), key)(approximation.init(jnp.zeros(3), jnp.full(3, 0.1)))
    end = 40  # almost three epochs
    straight = advanced(run, own_copy(start), new_stream(), key, end)
    compiled = set()
    for cut in (1, 4, 15, 16, 33):
        saved = jax.device_get(advanced(run, own_copy(start), new_stream(), key, cut))
        continued = advanced(run, jax.tree.map(jnp.asarray, saved), new_stream(), key, end)
        jax.tree.map(np.testing.assert_array_equal, continued, straight)
        compiled.add(run.program._cache_size())
    assert len(compiled) == 1  # no window makes anything compile again


def test_bad_rows_keep_the_last_good_state(tmp_path: Path) -> None:
    data = regression.data()
    data["x"][77, 1] = np.nan
    source = files.make_source("npy", tmp_path, data)
    with pytest.raises(isvi.DataError, match=r"'x' \(.*x.npy\) holds nan at row 77") as caught:
        isvi.fit(regression.model(), source, batch_size=BATCH_SIZE, algorithm=isvi.SGD(), seed=1, progress=False)
    fit = caught.value.fit  # type: ignore[attr-defined]
    assert 0 < fit.gradients < 40
    assert np.isfinite(fit.mean()["w"]).all()
    assert "reading the data raised DataError" in str(fit.status)
    assert reader_threads() == []


def test_what_happens_in_a_step_is_not_the_data_s_fault(tmp_path: Path) -> None:
    """The thread also ends when something else goes wrong."""
    source = files.make_source("npy", tmp_path, regression.data())

    class Interrupt:
        def __call__(self, *args: Any) -> Any:
            raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("isvi.fitting.running.driver.Driver._add_row", Interrupt())
        with pytest.raises(KeyboardInterrupt):
            isvi.fit(regression.model(), source, batch_size=BATCH_SIZE, algorithm=isvi.SGD(), progress=False)
    assert reader_threads() == []


@pytest.mark.parametrize("kind", [pytest.param("parquet", marks=SLOW), "loader"])
def test_numpyro_models(kind: str, tmp_path: Path) -> None:
    def model(x: Any, y: Any = None) -> None:
        w = numpyro.sample("w", dist.Normal(jnp.zeros(3), 1).to_event(1))
        with numpyro.plate("rows", x.shape[0]):
            numpyro.sample("y", dist.Normal(x @ w, regression.NOISE), obs=y)

    source = files.make_source(kind, tmp_path, regression.data())
    fit = isvi.fit(isvi.from_numpyro(model), source, batch_size=BATCH_SIZE, progress=False)
    assert regression.gap(fit.params) < 0.02
    rows = {"x": regression.data()["x"][:7].astype(np.float32)}
    assert fit.predict(rows, num_samples=5)["y"].shape == (5, 7)
    with pytest.raises(isvi.ConfigurationError, match="do not fit in memory"):
        fit.predict()


def test_numpyro_models_with_a_latent_per_row_are_refused(tmp_path: Path) -> None:
    def model(x: Any, y: Any) -> None:
        with numpyro.plate("rows", x.shape[0]):
            effect = numpyro.sample("effect", dist.Normal(0, 1))
            numpyro.sample("y", dist.Normal(effect, 1), obs=y)

    with pytest.raises(isvi.ModelError, match=r"'effect' depends on the rows.*as arrays"):
        isvi.fit(isvi.from_numpyro(model), files.make_source("npy", tmp_path, regression.data()), batch_size=BATCH_SIZE)


def test_external_gradients(tmp_path: Path) -> None:
    """Models that are evaluated on the host receive the rows of a source, in JAX's precision."""

    def value_and_grad(z: np.ndarray, rows: dict[str, np.ndarray]) -> tuple[float, np.ndarray]:
        assert type(rows["x"]) is np.ndarray
        residual = (rows["y"] - rows["x"] @ z) / regression.NOISE
        constant = len(residual) * np.log(regression.NOISE * np.sqrt(2 * np.pi))
        return -0.5 * residual @ residual - constant, rows["x"].T @ residual / regression.NOISE

    model = isvi.from_gradient(value_and_grad, 3, log_prior=lambda z: jax.scipy.stats.norm.logpdf(z).sum())
    source = files.make_source("parquet", tmp_path, regression.data())
    fit = isvi.fit(model, source, batch_size=BATCH_SIZE, algorithm=isvi.SGD(), num_samples=2, progress=False)
    assert regression.gap(fit.params) < 0.02
    latents = isvi.approximate(isvi.MeanField(), regression.model().latents)
    in_memory = replace(
        fit, model=regression.model(), approximation=latents, dataset=isvi.Dataset.from_arrays(regression.data())
    )
    # Rows in float32 on both sides, added up in another order and precision.
    assert fit.elbo().value == pytest.approx(in_memory.elbo().value, rel=1e-6)
    assert reader_threads() == []


def test_a_fit_that_is_refused_leaves_no_thread(tmp_path: Path) -> None:
    source = files.make_source("parquet", tmp_path, regression.data())
    wrong = isvi.Model({"w": isvi.real(3)}, lambda z: z["w"].sum(), lambda z, rows: rows["z"].sum())
    with pytest.raises(isvi.ModelError, match="asks for 'z'"):
        isvi.fit(wrong, source, batch_size=BATCH_SIZE)
    with pytest.raises(isvi.ConfigurationError, match=r"batch_size must be .* the number of rows, 130; got 131"):
        isvi.fit(regression.model(), source, batch_size=131)
    assert reader_threads() == []
