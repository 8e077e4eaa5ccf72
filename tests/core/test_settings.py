"""Strict settings of JAX: isvi works under them, and the user's model is still held to them."""

from contextlib import ExitStack

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import isvi
from isvi.core.settings import own_settings, users_settings

X = np.random.default_rng(0).normal(size=(60, 3)).astype(np.float32)
ROWS = {"x": X, "y": X.sum(axis=1)}


def model(sloppy: bool = False) -> isvi.Model:
    def log_likelihood(z, rows):
        off = rows["y"] - rows["x"] @ z["w"]
        if sloppy:
            off = off + jnp.zeros((1, 1)) + jnp.zeros((), jnp.int32)  # of another rank, and of another type
        return -0.5 * jnp.sum(off**2)

    return isvi.Model({"w": isvi.real(3)}, lambda z: -0.5 * jnp.sum(z["w"] ** 2), log_likelihood)


def settings(*names: str) -> ExitStack:
    entered = ExitStack()
    for name in names:
        setting = {
            "nans": lambda: jax.debug_nans(True),
            "rank": lambda: jax.numpy_rank_promotion("raise"),
            "dtype": lambda: jax.numpy_dtype_promotion("strict"),
        }[name]
        entered.enter_context(setting())
    return entered


@pytest.mark.parametrize(
    ("algorithm", "names"),
    [
        (isvi.ISAG(), ("nans", "rank", "dtype")),
        pytest.param(isvi.Auto(), ("nans",), marks=pytest.mark.slow),
        pytest.param(isvi.Auto(), ("rank",), marks=pytest.mark.slow),
        pytest.param(isvi.Auto(), ("dtype",), marks=pytest.mark.slow),
    ],
)
def test_a_fit_is_the_same(algorithm, names):
    options = {"algorithm": algorithm, "batch_size": 20, "budget": 60, "progress": False}
    expected = isvi.fit(model(), ROWS, **options)
    with settings(*names):
        fit = isvi.fit(model(), ROWS, **options)
        np.testing.assert_array_equal(fit.mean()["w"], expected.mean()["w"])
        assert np.isfinite(fit.elbo(10).value)
        assert np.isfinite(fit.log_prob(fit.sample(3))).all()


@pytest.mark.parametrize(("name", "words"), [("rank", "rank_promotion"), ("dtype", "dtype_promotion")])
def test_the_users_model_is_held_to_them(name, words):
    with settings(name), pytest.raises(Exception, match=words):
        isvi.fit(model(sloppy=True), ROWS, progress=False)


def test_settings_are_as_before_afterwards():
    with jax.numpy_rank_promotion("raise"):
        with own_settings():
            assert jax.config.jax_numpy_rank_promotion == "allow"
            with own_settings(), users_settings():
                assert jax.config.jax_numpy_rank_promotion == "raise"
            assert jax.config.jax_numpy_rank_promotion == "allow"
        assert jax.config.jax_numpy_rank_promotion == "raise"
