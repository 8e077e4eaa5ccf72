"""Unknown functions and factors: Gaussian processes, basis functions, networks as modules, matrix factorisation."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from benchmarks.models.case import Case, Data


def curve(size: int) -> Data:
    rng = np.random.default_rng(61)
    x = np.linspace(-1, 1, size)
    y = 0.5 * np.sin(5 * x) + x + 0.15 * rng.normal(size=size)
    return Data(None, {"X": x, "Y": (y - y.mean()) / y.std()})


def kernel(X, Z, var, length, noise, jitter=1.0e-6):
    deltaXsq = jnp.power((X[:, None] - Z) / length, 2.0)
    return var * jnp.exp(-0.5 * deltaXsq) + (noise + jitter) * jnp.eye(X.shape[0])


def gaussian_process(X, Y):
    var = numpyro.sample("kernel_var", dist.LogNormal(0.0, 10.0))
    noise = numpyro.sample("kernel_noise", dist.LogNormal(0.0, 10.0))
    length = numpyro.sample("kernel_length", dist.LogNormal(0.0, 10.0))
    k = kernel(X, X, var, length, noise)
    numpyro.sample("Y", dist.MultivariateNormal(loc=jnp.zeros(X.shape[0]), covariance_matrix=k), obs=Y)


def events() -> Data:
    rng = np.random.default_rng(62)
    x = np.linspace(0, 10, 40)
    return Data(None, {"x": x, "y": rng.poisson(np.exp(1.0 + np.sin(x)))})


def latent_gp_poisson(x, y=None):
    rho = numpyro.sample("rho", dist.InverseGamma(5, 5))
    alpha = numpyro.sample("alpha", dist.HalfNormal(1))
    intercept = numpyro.sample("intercept", dist.Normal(0, 2))
    with numpyro.plate("points", x.shape[0]):
        eta = numpyro.sample("eta", dist.Normal(0, 1))
    L = jnp.linalg.cholesky(kernel(x, x, alpha**2, rho, 0.0, 1e-5))
    f = numpyro.deterministic("f", L @ eta)
    numpyro.sample("y", dist.Poisson(jnp.exp(intercept + f)), obs=y)


def birthdays() -> Data:
    """Two years of days, with a slow trend, a year's period, weekdays and 366 special days."""
    rng = np.random.default_rng(63)
    day = np.arange(731)
    slow = 0.5 * np.sin(day / 200.0)
    week = np.array([0.3, 0.3, 0.3, 0.2, 0.2, -0.8, -0.9])
    special = np.where(rng.random(366) < 0.03, -1.5, 0.0)
    y = slow + 0.3 * np.sin(2 * np.pi * day / 365.25) + week[day % 7] + special[day % 366] + 0.3 * rng.normal(size=731)
    return Data(None, {"day": day, "y": (y - y.mean()) / y.std(), "M": 30, "J": 10})


def diagonal_spectrum(alpha, length, M, L):
    """Square roots of the spectral density of a squared exponential at the eigenvalues of an interval."""
    root = jnp.arange(1, 1 + M) * jnp.pi / (2 * L)
    return jnp.sqrt(alpha**2 * jnp.sqrt(2 * jnp.pi) * length * jnp.exp(-0.5 * length**2 * root**2))


def eigenfunctions(x, M, L):
    return jnp.sin(jnp.pi / (2 * L) * (x[:, None] + L) * jnp.arange(1, 1 + M)) / jnp.sqrt(L)


def hilbert_space_gp(day, y, M, J):
    """Slow trend by basis functions, a period by cosines, weekdays, and an effect for every day of the year with a
    horseshoe of its own; 785 latents."""
    x = (day - day.mean()) / day.std()
    alpha = numpyro.sample("f1_alpha", dist.HalfNormal(0.5))
    length = numpyro.sample("f1_length", dist.LogNormal(-1, 0.5))
    with numpyro.plate("basis", M):
        beta = numpyro.sample("f1_beta", dist.Normal(0, 1))
    f1 = eigenfunctions(x, M, 3.0) @ (diagonal_spectrum(alpha, length, M, 3.0) * beta)
    scale = numpyro.sample("f2_scale", dist.HalfNormal(0.5))
    with numpyro.plate("harmonics", J):
        cosine = numpyro.sample("f2_cosine", dist.Normal(0, scale))
    angles = 2 * jnp.pi * day[:, None] * jnp.arange(1, J + 1) / 365.25
    f2 = jnp.cos(angles) @ cosine
    with numpyro.plate("weekdays", 6):
        weekday = numpyro.sample("weekday", dist.Normal(0, 1))
    f3 = jnp.concatenate([jnp.zeros(1), weekday])[day % 7]
    tau = numpyro.sample("tau", dist.HalfNormal(0.1))
    with numpyro.plate("days_of_the_year", 366):
        local = numpyro.sample("local", dist.HalfNormal(4))
        effect = numpyro.sample("effect", dist.Normal(0, 1))
    f4 = (tau * local * effect)[day % 366]
    sigma = numpyro.sample("sigma", dist.HalfNormal(0.5))
    numpyro.sample("y", dist.Normal(f1 + f2 + f3 + f4, sigma), obs=y)


def crash() -> Data:
    """Accelerations of a helmet: quiet, a hit, quiet again."""
    rng = np.random.default_rng(64)
    x = np.sort(rng.uniform(2, 58, 133))
    y = -110 * np.exp(-0.5 * ((x - 21) / 4.5) ** 2) + 60 * np.exp(-0.5 * ((x - 33) / 4.0) ** 2)
    return Data({"x": x, "y": y + np.where(x < 13, 2.0, 22.0) * rng.normal(size=133)}, {"M_f": 40, "M_g": 20})


def accelerations(x, y=None, M_f=40, M_g=20):
    """Mean and log sd are both Gaussian processes by basis functions; 66 latents."""
    xn = (x - 25.0) / 13.0
    yn = (y + 25.0) / 48.0
    intercept_f = numpyro.sample("Intercept_f", dist.Normal(0, 1))
    intercept_g = numpyro.sample("Intercept_g", dist.Normal(0, 1))
    sigma_f = numpyro.sample("sigma_f", dist.HalfNormal(1))
    sigma_g = numpyro.sample("sigma_g", dist.HalfNormal(1))
    length_f = numpyro.sample("lengthscale_f", dist.LogNormal(-1, 0.5))
    length_g = numpyro.sample("lengthscale_g", dist.LogNormal(0, 0.5))
    beta_f = numpyro.sample("beta_f", dist.Normal(0, 1).expand([M_f]).to_event(1))
    beta_g = numpyro.sample("beta_g", dist.Normal(0, 1).expand([M_g]).to_event(1))
    L = 4.0
    f = intercept_f + eigenfunctions(xn, M_f, L) @ (diagonal_spectrum(sigma_f, length_f, M_f, L) * beta_f)
    g = intercept_g + eigenfunctions(xn, M_g, L) @ (diagonal_spectrum(sigma_g, length_g, M_g, L) * beta_g)
    numpyro.sample("y", dist.Normal(f, jnp.exp(g)), obs=yn)


def stars() -> Data:
    """Ratings by 40 people of 30 films, a third of them known."""
    rng = np.random.default_rng(65)
    people, films = rng.normal(size=(40, 5)), rng.normal(size=(30, 5))
    chosen = rng.random((40, 30)) < 0.35
    person, film = np.nonzero(chosen)
    rating = 3 + 0.5 * (people @ films.T)[chosen] + 0.4 * rng.normal(size=len(person))
    return Data({"person": person, "film": film, "rating": rating}, {"num_people": 40, "num_films": 30})


def matrix_factorisation(person, film, rating=None, num_people=None, num_films=None, rank=5):
    mean = numpyro.sample("mean", dist.Normal(3, 1))
    with numpyro.plate("people", num_people):
        u = numpyro.sample("u", dist.Normal(0, 1).expand([rank]).to_event(1))
    with numpyro.plate("films", num_films):
        v = numpyro.sample("v", dist.Normal(0, 0.5).expand([rank]).to_event(1))
    sigma = numpyro.sample("sigma", dist.HalfNormal(1))
    with numpyro.plate("ratings", person.shape[0]):
        numpyro.sample("rating", dist.Normal(jnp.sum(u[person] * v[film], axis=-1) + mean, sigma), obs=rating)


def noisy_sine() -> Data:
    rng = np.random.default_rng(66)
    x = rng.uniform(-1, 1, size=(80, 1))
    return Data({"x": x, "y": np.sin(3 * x[:, 0]) + 0.2 * rng.normal(size=80)})


def flax_network(x, y=None, hidden=5):
    """A flax module whose parameters have priors."""
    from flax import linen
    from numpyro.contrib.module import random_flax_module

    class Network(linen.Module):
        @linen.compact
        def __call__(self, x):
            return linen.Dense(1)(jnp.tanh(linen.Dense(hidden)(x)))[..., 0]

    network: Any = random_flax_module("network", Network(), prior=dist.Normal(0, 1), input_shape=(1,))
    sigma = numpyro.sample("sigma", dist.HalfNormal(1))
    numpyro.sample("y", dist.Normal(network(x), sigma), obs=y)


def flax_network_by_hand(x, y=None, hidden=5):
    """The same by sites with the same names."""
    sites = {"Dense_0": {"kernel": (1, hidden), "bias": (hidden,)}, "Dense_1": {"kernel": (hidden, 1), "bias": (1,)}}
    w = {
        layer: {
            part: numpyro.sample(f"network/{layer}.{part}", dist.Normal(0, 1).expand(shape).to_event())
            for part, shape in parts.items()
        }
        for layer, parts in sites.items()
    }
    hidden_values = jnp.tanh(x @ w["Dense_0"]["kernel"] + w["Dense_0"]["bias"])
    loc = (hidden_values @ w["Dense_1"]["kernel"] + w["Dense_1"]["bias"])[..., 0]
    sigma = numpyro.sample("sigma", dist.HalfNormal(1))
    numpyro.sample("y", dist.Normal(loc, sigma), obs=y)


def pictures() -> Data:
    rng = np.random.default_rng(67)
    return Data({"batch": rng.binomial(1, 0.3, size=(200, 16)).astype(float)})


def autoencoder(batch, hidden=8, z_dim=2):
    """The decoder of a variational autoencoder: weights are params, not latents."""
    w1 = numpyro.param("w1", 0.1 * jax.random.normal(jax.random.key(0), (z_dim, hidden)))
    w2 = numpyro.param("w2", 0.1 * jax.random.normal(jax.random.key(1), (hidden, batch.shape[1])))
    with numpyro.plate("batch", batch.shape[0]):
        z = numpyro.sample("z", dist.Normal(0, 1).expand([z_dim]).to_event(1))
        logits = jnp.tanh(z @ w1) @ w2
        numpyro.sample("obs", dist.Bernoulli(logits=logits).to_event(1), obs=batch)


CASES = (
    Case("gaussian_process", gaussian_process, partial(curve, 30), "all rows at once", {"samples": 2000}),
    Case(
        "gaussian_process_200",
        gaussian_process,
        partial(curve, 200),
        "all rows at once",
        {"samples": 500, "warm_up": 500},
    ),
    Case("latent_gp_poisson", latent_gp_poisson, events, "skew", {"samples": 1000}),
    Case("hilbert_space_gp", hilbert_space_gp, birthdays, "dimension", {"samples": 1000}),
    Case("accelerations", accelerations, crash, "scales", {"samples": 1500, "target": 0.95}),
    Case("matrix_factorisation", matrix_factorisation, stars, "rotation invariance", {"samples": 500, "warm_up": 500}),
    Case("flax_network", flax_network, noisy_sine, "front end", {"samples": 1500}, easier=flax_network_by_hand),
    Case("autoencoder", autoencoder, pictures, "to be refused with a reason", refused="numpyro.param"),
)
