"""Mixed models for tests."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.stats import norm

import isvi


def logistic_rows(groups: int, seed: int = 0, tau: float = 1.0, rows: int = 8) -> dict[str, np.ndarray]:
    """Groups of 1 to ``rows`` rows, named g0, g1, ..."""
    random = np.random.default_rng(seed)
    group = np.repeat(np.arange(groups), random.integers(1, rows + 1, groups))
    x = random.normal(size=len(group))
    eta = 0.5 * x - 0.3 + tau * random.normal(size=groups)[group]
    y = (random.random(len(group)) < 1 / (1 + np.exp(-eta))).astype(float)
    return {"x": x, "y": y, "group": np.array([f"g{number}" for number in group])}


def logistic(**options) -> isvi.Model:
    """y ~ Bernoulli(logit a + b x + u), u ~ N(0, tau)."""
    return isvi.Model(
        latents={"a": isvi.real(), "b": isvi.real(), "tau": isvi.positive()},
        log_prior=lambda z: norm.logpdf(z["a"], 0, 2) + norm.logpdf(z["b"], 0, 2) + norm.logpdf(z["tau"], 0, 2),
        log_likelihood=lambda z, row: -jax.nn.softplus((1 - 2 * row["y"]) * (z["a"] + z["b"] * row["x"] + z["u"])),
        local={"u": isvi.real()},
        log_local_prior=lambda z: norm.logpdf(z["u"], 0, z["tau"]),
        **options,
    )


def linear(**options) -> isvi.Model:
    """y ~ N(m + u, 1), u ~ N(0, tau)."""
    return isvi.Model(
        latents={"m": isvi.real(), "tau": isvi.positive()},
        log_prior=lambda z: norm.logpdf(z["m"], 0, 5) + norm.logpdf(z["tau"], 0, 2),
        log_likelihood=lambda z, row: norm.logpdf(row["y"], z["m"] + z["u"], 1.0),
        local={"u": isvi.real()},
        log_local_prior=lambda z: norm.logpdf(z["u"], 0, z["tau"]),
        **options,
    )


def linear_rows(groups: int = 200, seed: int = 1) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed)
    group = np.repeat(np.arange(groups), random.integers(1, 10, groups))
    return {"y": 2.0 + (1.5 * random.normal(size=groups))[group] + random.normal(size=len(group)), "group": group}


def linear_grid(rows: dict[str, np.ndarray]) -> tuple[dict[str, float], dict[str, float]]:
    """Posterior means and sds of m and tau, from the closed form of the marginal likelihood on a fine grid."""
    m, tau = np.linspace(1.0, 3.0, 401)[:, None], np.linspace(0.8, 2.4, 401)[None]
    size, total = np.bincount(rows["group"]), np.bincount(rows["group"], rows["y"])
    square = np.bincount(rows["group"], rows["y"] ** 2)
    log = -0.5 * (m / 5) ** 2 - 0.5 * (tau / 2) ** 2
    for n, s, q in zip(size, total, square, strict=True):
        spread = 1 + n * tau**2
        centred = q - 2 * m * s + n * m**2
        log = log - 0.5 * (np.log(spread) + centred - tau**2 * (s - n * m) ** 2 / spread)
    weights = np.exp(log - log.max())
    weights /= weights.sum()
    mean = {"m": float((weights * m).sum()), "tau": float((weights * tau).sum())}
    sd = {
        "m": float(np.sqrt((weights * (m - mean["m"]) ** 2).sum())),
        "tau": float(np.sqrt((weights * (tau - mean["tau"]) ** 2).sum())),
    }
    return mean, sd


def simulate(draws, rows, seed):
    """Posterior predictive draws of the linear model."""
    noise = np.random.default_rng(seed).normal(size=draws["u"].shape)
    return {"y": jnp.asarray(draws["m"])[:, None] + draws["u"] + noise}
