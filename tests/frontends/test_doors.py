"""One hierarchical regression through every door: the same posterior.

All doors have the same unconstrained space, so with the same seed and settings they see the same random numbers and
must arrive at the same place: the ELBO to 0.1 nat, means and standard deviations to 2% of a standard deviation.
"""

import re
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
import pytest

import isvi

N, J = 200, 4
RNG = np.random.default_rng(0)
X, GROUP = RNG.normal(size=N), RNG.integers(0, J, size=N)
Y = np.array([-0.5, 0.3, 1.0, 2.0])[GROUP] + 0.7 * X + 0.5 * RNG.normal(size=N)

LATENTS = {
    "centre": isvi.real(),
    "spread": isvi.positive(via="exp"),
    "level": isvi.real(J),
    "slope": isvi.real(),
    "noise": isvi.positive(via="exp"),
}


def log_prior(z: dict) -> Any:
    return (
        dist.Normal(0, 5).log_prob(z["centre"])
        + dist.HalfNormal(2).log_prob(z["spread"])
        + jnp.sum(dist.Normal(z["centre"], z["spread"]).log_prob(z["level"]))
        + dist.Normal(0, 5).log_prob(z["slope"])
        + dist.HalfNormal(2).log_prob(z["noise"])
    )


def log_likelihood(z: dict, rows: dict) -> Any:
    return jnp.sum(dist.Normal(z["level"][rows["group"]] + z["slope"] * rows["x"], z["noise"]).log_prob(rows["y"]))


def plain_door() -> tuple[Any, Any]:
    return isvi.Model(LATENTS, log_prior, log_likelihood), {"x": X, "group": GROUP, "y": Y}


def numpyro_door() -> tuple[Any, Any]:
    def model(x: Any, group: Any, y: Any = None) -> None:
        centre = numpyro.sample("centre", dist.Normal(0, 5))
        spread = numpyro.sample("spread", dist.HalfNormal(2))
        with numpyro.plate("groups", J):
            level = numpyro.sample("level", dist.Normal(centre, spread))
        slope = numpyro.sample("slope", dist.Normal(0, 5))
        noise = numpyro.sample("noise", dist.HalfNormal(2))
        with numpyro.plate("rows", x.shape[0]):
            numpyro.sample("y", dist.Normal(level[group] + slope * x, noise), obs=y)

    return isvi.from_numpyro(model), {"x": X, "group": GROUP, "y": Y}


def pymc_door() -> tuple[Any, Any]:
    import pymc as pm

    with pm.Model() as model:
        x, group, y = pm.Data("x", X), pm.Data("group", GROUP), pm.Data("outcome", Y)
        centre = pm.Normal("centre", 0, 5)
        spread = pm.HalfNormal("spread", 2)
        level = pm.Normal("level", centre, spread, shape=J)
        slope = pm.Normal("slope", 0, 5)
        noise = pm.HalfNormal("noise", 2)
        pm.Normal("y", level[group] + slope * x, noise, observed=y)
    return isvi.from_pymc(model), None


def stan_door() -> tuple[Any, Any]:
    """The program of the documentation. Its positive parameters have ``normal(0, 2)`` priors without the factor 2
    that cutting them at 0 gives: two log 2 are missing from its density, and are added to its ELBO below."""
    page = (Path(__file__).parents[2] / "docs" / "frontends" / "stan.md").read_text()
    program = re.search(r'program = """(.*?)"""', page, re.DOTALL)[1]
    data = {"N": N, "J": J, "member": GROUP + 1, "x": X, "y": Y}
    return isvi.from_stan(program, data, builder="httpstan"), None


def gradient_door() -> tuple[Any, Any]:
    """The log likelihood from outside: NumPy, with derivatives written by hand. Prior and constraints in JAX."""

    def value_and_grad(z: dict, rows: dict) -> tuple[Any, dict]:
        error = (rows["y"] - z["level"][rows["group"]] - z["slope"] * rows["x"]) / z["noise"]
        value = np.sum(-0.5 * error**2 - np.log(z["noise"]) - 0.5 * np.log(2 * np.pi))
        pull = error / z["noise"]
        return value, {
            "centre": np.zeros(()),
            "spread": np.zeros(()),
            "level": np.bincount(rows["group"], pull, minlength=J),
            "slope": np.sum(pull * rows["x"]),
            "noise": np.sum(error**2 - 1) / z["noise"],
        }

    return isvi.from_gradient(value_and_grad, LATENTS, log_prior=log_prior), {"x": X, "group": GROUP, "y": Y}


DOORS = {
    "numpyro": (numpyro_door, None, 0.0),
    "pymc": (pymc_door, "pymc", 0.0),
    "stan": (stan_door, "httpstan", 2 * np.log(2)),
    "gradient": (gradient_door, None, 0.0),
}


def fitted(door: Any) -> isvi.Fit:
    model, data = door()
    return isvi.fit(
        model,
        data,
        algorithm=isvi.ISGD(t=0.8),
        optimizer=optax.adam(optax.cosine_decay_schedule(0.05, 1500)),
        estimator=isvi.Reparameterization(num_samples=2),
        batch_size=None if data is None else N,
        budget=600,
        seed=1,
    )


@cache
def reference() -> isvi.Fit:
    return fitted(plain_door)


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::UserWarning")
@pytest.mark.parametrize("name", DOORS)
def test_same_posterior_through_every_door(name: str) -> None:
    door, package, constant = DOORS[name]
    if package is not None and find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    expected, fit = reference(), fitted(door)
    assert fit.gradients == expected.gradients
    assert fit.elbo().value + constant == pytest.approx(expected.elbo().value, abs=0.1)
    for latent, sd in expected.sd().items():
        assert np.all(np.abs(fit.mean()[latent] - expected.mean()[latent]) < 0.02 * sd), latent
        assert np.all(np.abs(fit.sd()[latent] - sd) < 0.02 * sd), latent


def test_the_posterior_is_the_right_one() -> None:
    """Not only the same everywhere: the levels, the slope and the noise that made the data, to 5 sds."""
    mean, sd = reference().mean(), reference().sd()
    truth = {"level": np.array([-0.5, 0.3, 1.0, 2.0]), "slope": 0.7, "noise": 0.5}
    for latent, value in truth.items():
        assert np.all(np.abs(mean[latent] - value) < 5 * sd[latent]), latent
