"""Rows that depend on each other are noticed, and never cut; independent ones are not taken for dependent."""

import logging
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.stats import nbinom, norm, poisson
from support import files

import isvi
from isvi.data import Batches, Dataset, Stream
from isvi.model.cutting import cut
from isvi.model.rows_check import dependence

N = 4000
RNG = np.random.default_rng(0)


def series(size: int, coefficient: float = 0.6) -> np.ndarray:
    """A stationary autoregressive series of unit noise."""
    noise = np.random.default_rng(1).normal(size=size)
    noise[0] /= np.sqrt(1 - coefficient**2)
    for t in range(1, size):
        noise[t] += coefficient * noise[t - 1]
    return noise


def of_mean(log_likelihood: Any) -> isvi.Model:
    return isvi.Model({"a": isvi.real()}, lambda z: norm.logpdf(z["a"]), log_likelihood)


def autoregression(z: Any, rows: Any) -> jax.Array:
    y = rows["y"]
    return norm.logpdf(y[0], 0.0, 2.0) + jnp.sum(norm.logpdf(y[1:], z["a"] * y[:-1], 1.0))


def gaussian_process(z: Any, rows: Any) -> jax.Array:
    distance = rows["x"][:, None] - rows["x"]
    covariance = jnp.exp(-0.5 * distance**2 / jnp.exp(z["a"])) + 0.1 * jnp.eye(len(rows["x"]))
    return jax.scipy.stats.multivariate_normal.logpdf(rows["y"], jnp.zeros(len(rows["x"])), covariance)


def filtered(z: Any, rows: Any) -> jax.Array:
    """A level that follows the rows, as in exponential smoothing."""

    def step(level: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array]:
        return level + jax.nn.sigmoid(z["a"]) * (y - level), norm.logpdf(y, level, 1.0)

    return jnp.sum(jax.lax.scan(step, jnp.zeros_like(z["a"]), rows["y"])[1])


def normal(z: Any, rows: Any) -> jax.Array:
    return jnp.sum(norm.logpdf(rows["y"], z["a"], 1.0))


DEPENDENT = {
    "autoregression": (autoregression, "in another order"),
    "scan": (filtered, "in another order"),
    "gaussian process": (gaussian_process, "two halves"),
    "mean": (lambda z, rows: normal(z, rows) / len(rows["y"]), "It must be their sum"),
    "scaled by hand": (lambda z, rows: N / len(rows["y"]) * normal(z, rows), "It must be their sum|two halves"),
    "prior inside": (lambda z, rows: normal(z, rows) + norm.logpdf(z["a"], 0.0, 3.0), "two halves"),
    "normalised by the batch": (
        lambda z, rows: jnp.sum(norm.logpdf(rows["y"] - jnp.mean(rows["y"]), z["a"], 1.0)),
        "two halves",
    ),
}


@pytest.mark.parametrize(("log_likelihood", "words"), DEPENDENT.values(), ids=DEPENDENT)
def test_dependent_rows_are_noticed(log_likelihood: Any, words: str) -> None:
    rows = {"y": series(200).astype(np.float32), "x": np.linspace(0, 20, 200, dtype=np.float32)}
    found = dependence(of_mean(log_likelihood), rows, {})
    assert found is not None
    assert any(word in found for word in words.split("|")), found


def regression(scale: float, size: int) -> tuple[isvi.Model, Any]:
    """``size`` slopes, and an outcome of the order of ``scale``, whose log density is of the order of -scale^2."""
    x = RNG.normal(size=(1000, size)).astype(np.float32)
    y = (scale * (1 + x[:, 0] + 0.5 * RNG.normal(size=1000))).astype(np.float32)
    model = isvi.Model(
        {"w": isvi.real(size), "b": isvi.real(), "s": isvi.positive()},
        lambda z: -jnp.sum(z["w"] ** 2),
        lambda z, rows: jnp.sum(norm.logpdf(rows["y"], rows["x"] @ z["w"] + z["b"], z["s"])),
    )
    return model, {"x": x, "y": y}


def counts(log_mass: Any) -> tuple[isvi.Model, Any]:
    """Counts of the order of 10,000: terms of 100,000 that cancel to about 10 for every row."""
    y = RNG.poisson(10_000, size=1000).astype(np.float32)
    return of_mean(lambda z, rows: jnp.sum(log_mass(rows["y"], 1e4 * jnp.exp(0.01 * z["a"])))), {"y": y}


def closed_over() -> tuple[isvi.Model, Any]:
    """Numbers in double precision that a model closes over, and terms that cancel: looked at in both precisions."""
    offset = np.linspace(1e6, 2e6, 7)
    group, y = RNG.integers(0, 7, size=1000), RNG.normal(size=1000).astype(np.float32)

    def log_likelihood(z: Any, rows: Any) -> jax.Array:
        off = rows["y"] + jnp.take(offset, rows["g"]) - jnp.take(offset, rows["g"]) * (1 + z["a"])
        return jnp.sum(jnp.where(rows["g"] % 2 == 0, 1.0, -1.0) * off**2)

    return of_mean(log_likelihood), {"y": y, "g": group.astype(np.int32)}


INDEPENDENT = {
    "regression": lambda: regression(1.0, 3),
    "log densities of -1e14": lambda: regression(1e7, 3),
    "1,000 latents": lambda: regression(20_000.0, 1000),
    "large counts": lambda: counts(poisson.logpmf),
    "negative binomial": lambda: counts(lambda y, mean: nbinom.logpmf(y, 10.0, 10.0 / (10.0 + mean))),
    "closing over numpy": closed_over,
}


@pytest.mark.parametrize("double", [False, True], ids=["single", "double"])
@pytest.mark.parametrize("make", INDEPENDENT.values(), ids=INDEPENDENT)
def test_independent_rows_are_left_alone(make: Any, double: bool) -> None:
    """Rounding in single precision is no dependence, whatever it adds up to."""
    with jax.enable_x64(double):
        model, rows = make()
        assert dependence(model, rows, {}) is None


def test_a_second_look_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that closes over float64 numbers and is looked at in double precision is fitted in single precision."""
    scale = np.linspace(1.0, 2.0, 5)
    y = series(5000).astype(np.float32)

    def log_likelihood(z: Any, rows: Any) -> jax.Array:
        s = jnp.dot(scale, scale) / 11.5
        return jnp.sum(norm.logpdf(rows["y"][1:], z["a"] * rows["y"][:-1], s))

    fit = isvi.fit(of_mean(log_likelihood), {"y": y}, batch_size=500, progress=False)
    assert fit.dataset.num_batches == 1
    assert fit.dataset.full["y"].dtype == np.float32


def test_a_series_is_fitted_right(caplog: pytest.LogCaptureFixture) -> None:
    """12,000 rows, of which 1,000 would be a mini-batch. The posterior of the coefficient given unit noise is
    Gaussian with mean sum(y y') / sum(y'^2) and sd 1 / sqrt(sum(y'^2)), up to the flat prior: exact to 0.1 sd."""
    y = series(12_000).astype(np.float32)
    with caplog.at_level(logging.WARNING, logger="isvi"):
        fit = isvi.fit(of_mean(autoregression), {"y": y}, progress=False)
    before, after = y[:-1].astype(float), y[1:].astype(float)
    sd = 1 / np.sqrt(before @ before + 1)
    assert abs(fit.mean()["a"] - before @ after * sd**2) < 0.1 * sd
    assert fit.sd()["a"] == pytest.approx(sd, rel=0.1)
    assert abs(fit.mean()["a"] - 0.6) < 3 * sd
    assert np.array_equal(fit.dataset.full["y"][0], y), "one mini-batch, in the order of the rows"
    assert "not a sum over independent rows" in fit.status.message
    assert "not a sum over independent rows" in " ".join(str(fit.summary()).split())
    assert "12,000 rows are used at once" in caplog.text


def test_independent_rows_say_nothing(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="isvi"):
        fit = isvi.fit(of_mean(normal), {"y": RNG.normal(size=500)}, batch_size=100, progress=False)
    assert fit.dataset.num_batches == 5
    assert "independent" not in fit.status.message + caplog.text


@pytest.mark.parametrize(("said", "batches"), [(True, 8), (False, 1)])
def test_the_user_has_the_last_word(said: bool, batches: int) -> None:
    y = series(400)
    fit = isvi.fit(
        of_mean(autoregression), {"y": y}, batch_size=50, independent_rows=said, algorithm=isvi.SGD(), budget=20
    )
    assert fit.dataset.num_batches == batches
    assert ("not a sum" in fit.status.message) is not said


def test_resumed_and_loaded_fits_are_not_cut_either(tmp_path: Path) -> None:
    y = series(1500).astype(np.float32)
    model, options = of_mean(autoregression), {"batch_size": 300, "budget": 60, "algorithm": isvi.SGD()}
    fit = isvi.fit(model, {"y": y}, checkpoint=tmp_path / "run", progress=False, **options)
    resumed = isvi.resume(tmp_path / "run", model, {"y": y}, progress=False)
    assert "not a sum over independent rows" in resumed.status.message
    fit.save(tmp_path / "fit.isvi")
    loaded = isvi.load(tmp_path / "fit.isvi", model, {"y": y})
    assert loaded.elbo().value == pytest.approx(fit.elbo().value, rel=1e-9)


@pytest.mark.parametrize("kind", files.KINDS)
def test_streamed_series_are_read_as_they_are(kind: str, tmp_path: Path) -> None:
    data = {"x": np.arange(130.0, dtype=np.float32)[:, None], "y": series(130).astype(np.float32)}
    source = files.make_source(kind, tmp_path, data)
    dataset, independent = cut(of_mean(autoregression), source, 13)
    assert independent is False
    assert isinstance(dataset, Dataset)
    assert np.array_equal(dataset.full["y"][0], data["y"])
    dataset, independent = cut(of_mean(normal), source, 13)
    assert independent is True
    dataset.release()


def test_too_many_to_hold_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("isvi.model.cutting.RESIDENT_BYTES", 1000)
    source = Batches([{"y": part} for part in np.split(series(1000), 10)])
    with pytest.raises(isvi.ModelError, match=r"not a sum over independent rows(?s:.*)one row of what depends"):
        cut(of_mean(autoregression), source, 100)


def test_one_mini_batch_keeps_the_order_of_its_rows() -> None:
    y = series(100)
    assert np.array_equal(Dataset.from_arrays({"y": y}).full["y"][0], y.astype(np.float32))
    stream = Stream(Batches([{"y": part} for part in np.split(y, 5)]), 100, shuffle_seed=3)
    assert np.array_equal(stream.first.full["y"][0], y.astype(np.float32))
    stream.release()


def test_a_model_for_one_size_of_mini_batches_is_judged_by_the_order() -> None:
    weights = jnp.linspace(1.0, 2.0, 50)
    assert dependence(of_mean(lambda z, rows: norm.logpdf(rows["y"], z["a"], 1.0) @ weights), {"y": series(50)}, {})
    same = jnp.ones(50)
    independent = of_mean(lambda z, rows: norm.logpdf(rows["y"], z["a"], 1.0) @ same)
    assert dependence(independent, {"y": series(50)}, {}) is None


def test_looked_at_where_the_fit_starts() -> None:
    """Near the image of 0 this density is not a number; around the initial value it is."""
    model = of_mean(lambda z, rows: autoregression(z, rows) + jnp.where(z["a"] > 10, 0.0, jnp.nan))
    rows = {"y": series(100)}
    assert dependence(model, rows, {}) is None
    assert dependence(model, rows, {"a": 20.0}) is not None


def test_callables_on_the_host() -> None:
    """By a few evaluations; one whose answers are random is not judged."""
    y = series(300)
    generator = np.random.default_rng(0)

    def independent(z: np.ndarray, rows: Any) -> tuple[float, np.ndarray]:
        off = rows["y"] - z[0]
        return np.float32(-0.5 * off @ off), np.array([off.sum()])

    def dependent(z: np.ndarray, rows: Any) -> tuple[float, np.ndarray]:
        before, after = rows["y"][:-1], rows["y"][1:]
        off = after - z[0] * before
        return -0.5 * off @ off, np.array([off @ before])

    def random(z: np.ndarray, rows: Any) -> tuple[float, np.ndarray]:
        value, gradient = independent(z, rows)
        return value + generator.normal(), gradient

    def found(function: Any) -> tuple[bool | None, int]:
        model = isvi.from_gradient(function, 1, log_prior=lambda z: -0.5 * jnp.sum(z**2))
        bound, rows = model.with_rows({"y": y})
        independent = cut(bound, rows, 50)[1]
        return independent, bound.external.count.calls

    assert found(independent) == (True, 12)
    assert found(dependent) == (False, 15)
    assert found(random) == (True, 15)
