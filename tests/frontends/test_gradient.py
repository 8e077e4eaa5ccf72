"""A callable outside JAX: the same density as inside, with what the library adds to it."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import isvi
from isvi.data import Dataset
from isvi.families import approximate
from isvi.model import bind, make_target

LATENTS = {"w": isvi.real(2), "rate": isvi.positive(), "mix": isvi.simplex(3), "angle": isvi.interval(-1.0, 2.0)}


def density(z: dict) -> jax.Array:
    return (
        -0.5 * jnp.sum(z["w"] ** 2) * z["rate"] - z["rate"] + jnp.sum(jnp.log(z["mix"])) - z["angle"] ** 2 * z["w"][0]
    )


def outside(z: dict) -> tuple[Any, dict]:
    """The same density, as a service elsewhere would give it."""
    with jax.enable_x64(True):
        value, gradient = jax.value_and_grad(density)({name: jnp.asarray(one) for name, one in z.items()})
        return np.asarray(value), jax.tree.map(np.asarray, gradient)


def targets(**options: Any) -> tuple[Any, Any, Any]:
    approximation = approximate(isvi.MeanField(), LATENTS)
    inner = make_target(isvi.Model(LATENTS, density), approximation.coordinates)
    model, _, _ = bind(isvi.from_gradient(outside, LATENTS, **options), None, None)
    draws = jax.random.normal(jax.random.key(0), (5, approximation.dim))
    return inner, make_target(model, approximation.coordinates), draws


def test_adds_constraints_and_jacobians() -> None:
    inner, outer, draws = targets()
    batch = Dataset.from_arrays(None).batch(0)
    for ours, theirs in zip(
        outer.values_and_gradients(draws, batch), inner.values_and_gradients(draws, batch), strict=True
    ):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)


def test_works_inside_compiled_code_too() -> None:
    """Other parts of the library may trace a target; the loop does not."""
    _, outer, draws = targets()
    dataset = Dataset.from_arrays(None)
    batch = dataset.batch(0)
    traced = jax.jit(outer.values_and_gradients)(draws, batch)
    for ours, theirs in zip(outer.values_and_gradients(draws, batch), traced, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(
        outer.exact_values(draws, dataset), jax.jit(outer.exact_values)(draws, dataset), rtol=1e-4
    )


def test_elbo_is_evaluated_in_double_precision() -> None:
    """A log density of 1e9 plus a Gaussian: float32 would lose the Gaussian."""
    fit = isvi.fit(isvi.from_gradient(lambda z: (1e9 - 0.5 * float(z @ z), -z), 1), algorithm=isvi.ISGD(), budget=500)
    assert fit.elbo().value - 1e9 == pytest.approx(0.5 * np.log(2 * np.pi), abs=0.1)


def test_what_single_precision_cannot_hold_is_not_finite() -> None:
    """And no warning of NumPy's, which would be an error here."""
    model, _, _ = bind(isvi.from_gradient(lambda z: (-1e50 * float(z @ z), -2e50 * z), 2), None, None)
    target = make_target(model, approximate(isvi.MeanField(), model.latents).coordinates)
    draws, batch = jnp.ones((1, 2), jnp.float32), Dataset.from_arrays(None).batch(0)
    values, gradients = target.values_and_gradients(draws, batch)
    assert np.isneginf(values).all()
    assert np.isneginf(gradients).all()


def test_vectorized_is_the_same() -> None:
    def one(z: np.ndarray) -> tuple[Any, Any]:
        return -np.sum(np.cosh(z)), -np.sinh(z)

    def many(z: np.ndarray) -> tuple[Any, Any]:
        return -np.sum(np.cosh(z), axis=1), -np.sinh(z)

    draws = jax.random.normal(jax.random.key(0), (4, 3))
    coordinates = approximate(isvi.MeanField(), {"z": isvi.real(3)}).coordinates
    batch = Dataset.from_arrays(None).batch(0)
    plain, vector = isvi.from_gradient(one, 3), isvi.from_gradient(many, 3, vectorized=True)
    for a, b in zip(
        make_target(plain, coordinates).values_and_gradients(draws, batch),
        make_target(vector, coordinates).values_and_gradients(draws, batch),
        strict=True,
    ):
        np.testing.assert_allclose(a, b, rtol=1e-6)
    assert (plain.external.count.calls, vector.external.count.calls) == (4, 1)


def test_mini_batches_of_rows_as_they_came() -> None:
    """Rows keep their type; weighted over all mini-batches, the log joint is that of all rows."""
    rows = np.random.default_rng(0).normal(size=7)
    seen = []

    def likelihood(z: np.ndarray, rows: dict) -> tuple[Any, Any]:
        seen.append((z.dtype, rows["y"].dtype, rows["label"].dtype.kind))
        return -0.5 * np.sum((rows["y"] - z) ** 2), np.array([np.sum(rows["y"] - z)])

    model = isvi.from_gradient(likelihood, 1, log_prior=lambda z: -0.5 * jnp.sum(z**2))
    bound = bind(model, {"y": rows, "label": np.array(list("abcdefg"))}, None)
    dataset = Dataset.from_arrays(bound.data, 3)
    target = make_target(bound.model, approximate(isvi.MeanField(), model.latents).coordinates)
    draws = jnp.array([[0.3], [-1.0]])
    parts = [target.values(draws, dataset.batch(b)) * dataset.batch(b).share for b in range(3)]
    expected = -0.5 * jnp.sum((rows - draws) ** 2, axis=1) - 0.5 * draws[:, 0] ** 2
    np.testing.assert_allclose(sum(parts), expected, rtol=1e-5)
    np.testing.assert_allclose(target.exact_values(draws, dataset), expected, rtol=1e-5)
    assert set(seen) == {(np.dtype(np.float64), np.dtype(np.float64), "U")}


@pytest.mark.parametrize(
    ("function", "latents", "message"),
    [
        (lambda z: -z @ z, 2, "must return \\(log density, gradient\\)"),
        (lambda z: (0.0, z[:1]), 2, "shape of its value, \\(2,\\); got \\(1,\\)"),
        (lambda z: (z, z), 2, "a single number"),
        (lambda z: (-0.5 * z["a"] ** 2, {"a": -z["a"]}), {"a": isvi.real()}, None),
        (lambda z: (0.0, {"b": 1.0}), {"a": isvi.real()}, "one entry per latent, \\['a'\\]; got \\['b'\\]"),
        (lambda z: (-np.inf, z), 2, "gave the log density -inf"),
        (lambda z: (0.0, z * np.nan), 2, "not finite in z\\[0\\]"),
    ],
)
def test_wrong_answers_are_refused_before_fitting(function: Any, latents: Any, message: str | None) -> None:
    if message is None:  # nothing is wrong with it
        assert isvi.fit(isvi.from_gradient(function, latents), algorithm=isvi.ISGD(), budget=5).gradients == 5
        return
    with pytest.raises(isvi.ModelError, match=message):
        isvi.fit(isvi.from_gradient(function, latents), algorithm=isvi.ISGD(), budget=5)


def test_exceptions_before_fitting_have_a_note() -> None:
    def broken(z: np.ndarray) -> Any:
        return z["a"]  # type: ignore[call-overload]

    with pytest.raises(IndexError) as caught:
        isvi.fit(isvi.from_gradient(broken, 2))
    assert "isvi.from_gradient" in "".join(caught.value.__notes__)


def test_data_need_a_prior_apart() -> None:
    model = isvi.from_gradient(lambda z, rows: (0.0, z), 2)
    with pytest.raises(isvi.ConfigurationError, match="log_prior"):
        isvi.fit(model, {"y": np.zeros(3)})


@pytest.mark.parametrize("latents", [0, -1, 2.5, True, "z"])
def test_length_must_be_a_number(latents: Any) -> None:
    with pytest.raises(isvi.ConfigurationError, match="length of z"):
        isvi.from_gradient(lambda z: (0.0, z), latents)


def test_pytorch() -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")

    def value_and_grad(z: np.ndarray) -> tuple[Any, Any]:
        point = torch.tensor(z, requires_grad=True)
        value = -0.5 * ((point - 1.0) ** 2).sum()
        value.backward()
        return value.item(), point.grad

    fit = isvi.fit(isvi.from_gradient(value_and_grad, 2), algorithm=isvi.ISGD(), num_samples=4, budget=2000)
    np.testing.assert_allclose(fit.mean()["z"], 1.0, atol=0.15)
