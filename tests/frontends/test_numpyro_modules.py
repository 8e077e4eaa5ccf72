"""Neural networks with priors, as NumPyro's users write them."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers
from numpyro.contrib import module
from numpyro.infer.util import log_density

import isvi

RNG = np.random.default_rng(0)
X = RNG.normal(size=(40, 2))
Y = np.sin(X[:, 0]) + 0.1 * RNG.normal(size=40)


def flax_net(prior: Any = None) -> Callable:
    linen = pytest.importorskip("flax.linen")
    network = linen.Sequential([linen.Dense(3), jnp.tanh, linen.Dense(1)])
    return module.random_flax_module("net", network, prior or dist.Normal(), input_shape=(1, 2))


def nnx_net() -> Callable:
    nnx = pytest.importorskip("flax.nnx")
    keys = nnx.Rngs(0)
    network = nnx.Sequential(nnx.Linear(2, 3, rngs=keys), jnp.tanh, nnx.Linear(3, 1, rngs=keys))
    return module.random_nnx_module("net", network, dist.Normal())


def eqx_net() -> Callable:
    eqx = pytest.importorskip("equinox")
    network = eqx.nn.MLP(2, 1, 3, 1, activation=jnp.tanh, key=jax.random.key(0))
    return jax.vmap(module.random_eqx_module("net", network, dist.Normal()))


def regression(net: Callable) -> Callable:
    def model(x: Any, y: Any = None) -> None:
        mean = net()(x).squeeze(-1)
        noise = numpyro.sample("noise", dist.HalfNormal(1))
        with numpyro.plate("rows", len(x)):
            numpyro.sample("y", dist.Normal(mean, noise), obs=y)

    return model


@pytest.mark.parametrize("net", [flax_net, *(pytest.param(net, marks=pytest.mark.slow) for net in (nnx_net, eqx_net))])
def test_random_modules_have_numpyros_density_and_can_be_fitted(net: Callable) -> None:
    """2 x 3 + 3 + 3 + 1 weights and the noise."""
    with handlers.seed(rng_seed=0):
        net()  # skips where the package is missing
    data = {"x": X, "y": Y}
    bound = isvi.from_numpyro(regression(net)).bind(data, 10)
    latents = bound.model.latents
    assert sum(latent.unconstrained_size for latent in latents.values()) == 14
    values = {name: latent.transform(jnp.full(latent.unconstrained_shape, 0.3)) for name, latent in latents.items()}
    rows = {name: jnp.asarray(column) for name, column in data.items()}
    expected = float(log_density(handlers.seed(regression(net), 0), (), rows, values)[0])
    assert bound.model.log_likelihood is not None
    found = bound.model.log_prior(values) + bound.model.log_likelihood(values, rows)
    assert float(found) == pytest.approx(expected, rel=1e-5)
    fit = isvi.fit(isvi.from_numpyro(regression(net)), data, batch_size=20, budget=40, progress=False)
    assert fit.dataset.num_batches == 2
    assert np.isfinite(fit.elbo(10).value)
    assert fit.predict({"x": X[:3]}, num_samples=5)["y"].shape == (5, 3)


def test_weights_without_a_prior_are_refused_by_name() -> None:
    linen = pytest.importorskip("flax.linen")

    def some_priors() -> Callable:
        return module.random_flax_module("net", linen.Dense(1), {"kernel": dist.Normal()}, input_shape=(1, 2))

    def decoder() -> Callable:
        return module.flax_module("net", linen.Dense(1), input_shape=(1, 2))

    with pytest.raises(isvi.ModelError, match=r"an optimum(?s:.*)bias(?s:.*)random_flax_module\('net'"):
        isvi.from_numpyro(regression(some_priors)).bind({"x": X, "y": Y})
    with pytest.raises(isvi.ModelError, match=r"an optimum(?s:.*)random_flax_module\('net'(?s:.*)amortised guide"):
        isvi.from_numpyro(regression(decoder)).bind({"x": X, "y": Y})
