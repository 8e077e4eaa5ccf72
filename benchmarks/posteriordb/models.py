"""The models, as they are described in words next to the data; nothing is standardised or reparameterised.

Positive parameters are approximated on their logarithms, as Stan and NumPyro do it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.special import logsumexp
from jax.scipy.stats import beta, cauchy, norm, t
from numpyro.distributions import constraints

import isvi

Data = dict[str, Any]


@dataclass(frozen=True)
class Problem:
    """A model and the rows to fit it to (None for a density that is not a sum over rows)."""

    model: isvi.Model
    rows: dict[str, np.ndarray] | None


def half_cauchy(value: Array, scale: float) -> Array:
    return cauchy.logpdf(value, scale=scale) + jnp.log(2.0)


def half_normal(value: Array, scale: float) -> Array:
    return norm.logpdf(value, scale=scale) + jnp.log(2.0)


def flat(z: dict[str, Array]) -> Array:
    return jnp.zeros(())


def columns(*values: Any) -> np.ndarray:
    """A design matrix."""
    return np.stack(np.broadcast_arrays(*(np.asarray(value, float) for value in values)), axis=1)


def linear(
    x: np.ndarray, y: Any, log_prior: Callable = flat, flat_beta: bool = False, flat_sigma: bool = False
) -> Problem:
    """y ~ N(x beta, sigma)."""
    model = isvi.Model(
        latents={
            "beta": isvi.real(x.shape[1], flat_prior=flat_beta),
            "sigma": isvi.positive(via="exp", flat_prior=flat_sigma),
        },
        log_prior=log_prior,
        log_likelihood=lambda z, rows: jnp.sum(norm.logpdf(rows["y"], rows["x"] @ z["beta"], z["sigma"])),
    )
    return Problem(model, {"x": x, "y": np.asarray(y, float)})


def sblrc(data: Data) -> Problem:
    def log_prior(z: dict[str, Array]) -> Array:
        return jnp.sum(norm.logpdf(z["beta"], scale=10.0)) + half_normal(z["sigma"], 10.0)

    return linear(np.asarray(data["X"], float), data["y"], log_prior)


def kidiq(data: Data) -> Problem:
    school, iq = np.asarray(data["mom_hs"], float), np.asarray(data["mom_iq"], float)
    x = columns(1, school, iq, school * iq)
    return linear(x, data["kid_score"], lambda z: half_cauchy(z["sigma"], 2.5), flat_beta=True)


def earnings(data: Data) -> Problem:
    height, male = np.asarray(data["height"], float), np.asarray(data["male"], float)
    x = columns(1, height, male, height * male)
    return linear(x, np.log(data["earn"]), flat_beta=True, flat_sigma=True)


def nes(data: Data) -> Problem:
    age = np.asarray(data["age_discrete"])
    others = (data[name] for name in ("educ1", "gender", "income"))
    x = columns(1, data["real_ideo"], data["race_adj"], age == 2, age == 3, age == 4, *others)
    return linear(x, data["partyid7"], flat_beta=True, flat_sigma=True)


def raw_mesquite(data: Data) -> Problem:
    names = ("diam1", "diam2", "canopy_height", "total_height", "density", "group")
    x = columns(1, *(data[name] for name in names))
    return linear(x, data["weight"], flat_beta=True, flat_sigma=True)


def mesquite(data: Data) -> Problem:
    logged = ("diam1", "diam2", "canopy_height", "total_height", "density")
    x = columns(1, *(np.log(data[name]) for name in logged), data["group"])
    return linear(x, np.log(data["weight"]), flat_beta=True, flat_sigma=True)


def autoregression(data: Data) -> Problem:
    y, order = np.asarray(data["y"], float), data["K"]
    lags = np.stack([y[order - k : len(y) - k] for k in range(1, order + 1)], axis=1)

    def log_prior(z: dict[str, Array]) -> Array:
        coefficients = norm.logpdf(z["alpha"], scale=10.0) + jnp.sum(norm.logpdf(z["beta"], scale=10.0))
        return coefficients + half_cauchy(z["sigma"], 2.5)

    def log_likelihood(z: dict[str, Array], rows: dict[str, Array]) -> Array:
        return jnp.sum(norm.logpdf(rows["y"], z["alpha"] + rows["lags"] @ z["beta"], z["sigma"]))

    latents = {"alpha": isvi.real(), "beta": isvi.real(order), "sigma": isvi.positive(via="exp")}
    return Problem(isvi.Model(latents, log_prior, log_likelihood), {"y": y[order:], "lags": lags})


def diamonds(data: Data) -> Problem:
    x = np.asarray(data["X"], float)[:, 1:]
    centre = x.mean(axis=0)

    def log_prior(z: dict[str, Array]) -> Array:
        half_t = t.logpdf(z["sigma"], 3.0, scale=10.0) + jnp.log(2.0)
        return jnp.sum(norm.logpdf(z["b"])) + t.logpdf(z["Intercept"], 3.0, loc=8.0, scale=10.0) + half_t

    def log_likelihood(z: dict[str, Array], rows: dict[str, Array]) -> Array:
        return jnp.sum(norm.logpdf(rows["y"], z["Intercept"] + rows["x"] @ z["b"], z["sigma"]))

    model = isvi.Model(
        {"b": isvi.real(x.shape[1]), "Intercept": isvi.real(), "sigma": isvi.positive(via="exp")},
        log_prior,
        log_likelihood,
        report=lambda draws: {**draws, "b_Intercept": draws["Intercept"] - draws["b"] @ centre},
    )
    return Problem(model, {"x": x - centre, "y": np.asarray(data["Y"], float)})


def kilpisjarvi(data: Data) -> Problem:
    def log_prior(z: dict[str, Array]) -> Array:
        intercept = norm.logpdf(z["alpha"], data["pmualpha"], data["psalpha"])
        return intercept + norm.logpdf(z["beta"], data["pmubeta"], data["psbeta"])

    def log_likelihood(z: dict[str, Array], rows: dict[str, Array]) -> Array:
        return jnp.sum(norm.logpdf(rows["y"], z["alpha"] + z["beta"] * rows["x"], z["sigma"]))

    latents = {"alpha": isvi.real(), "beta": isvi.real(), "sigma": isvi.positive(via="exp", flat_prior=True)}
    rows = {name: np.asarray(data[name], float) for name in ("x", "y")}
    return Problem(isvi.Model(latents, log_prior, log_likelihood), rows)


def eight_schools(data: Data) -> Problem:
    def log_prior(z: dict[str, Array]) -> Array:
        top = norm.logpdf(z["mu"], scale=5.0) + half_cauchy(z["tau"], 5.0)
        return jnp.sum(norm.logpdf(z["theta_trans"])) + top

    def log_likelihood(z: dict[str, Array], rows: dict[str, Array]) -> Array:
        theta = z["mu"] + z["tau"] * z["theta_trans"][rows["school"]]
        return jnp.sum(norm.logpdf(rows["y"], theta, rows["sigma"]))

    def report(draws: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        return {**draws, "theta": draws["mu"][:, None] + draws["tau"][:, None] * draws["theta_trans"]}

    latents = {"theta_trans": isvi.real(data["J"]), "mu": isvi.real(), "tau": isvi.positive(via="exp")}
    rows = {name: np.asarray(data[name], float) for name in ("y", "sigma")}
    return Problem(
        isvi.Model(latents, log_prior, log_likelihood, report=report), {**rows, "school": np.arange(data["J"])}
    )


def garch(data: Data) -> Problem:
    """beta1's interval depends on alpha1, so the latent is beta1's share of it, and the flat prior on beta1 gives the
    factor 1 - alpha1. The series is one long row: it must stay in order."""
    y = np.asarray(data["y"], float)

    def log_density(z: dict[str, Array]) -> Array:
        width = 1 - z["alpha1"]
        beta1 = z["beta1_share"] * width
        series = jnp.asarray(y, z["mu"].dtype)
        squares = (series - z["mu"]) ** 2

        def next_variance(variance: Array, square: Array) -> tuple[Array, Array]:
            return z["alpha0"] + z["alpha1"] * square + beta1 * variance, variance

        first = jnp.full_like(z["mu"], data["sigma1"] ** 2)
        _, variances = jax.lax.scan(next_variance, first, squares)
        return jnp.sum(norm.logpdf(series, z["mu"], jnp.sqrt(variances))) + jnp.log(width)

    latents = {
        "mu": isvi.real(),
        "alpha0": isvi.positive(via="exp"),
        "alpha1": isvi.unit_interval(),
        "beta1_share": isvi.unit_interval(),
    }
    model = isvi.Model(
        latents,
        log_density,
        report=lambda draws: {**draws, "beta1": draws["beta1_share"] * (1 - draws["alpha1"])},
    )
    return Problem(model, None)


def mixture(data: Data) -> Problem:
    def log_prior(z: dict[str, Array]) -> Array:
        components = jnp.sum(norm.logpdf(z["mu"], scale=2.0) + half_normal(z["sigma"], 2.0))
        return components + beta.logpdf(z["theta"], 5.0, 5.0)

    def log_likelihood(z: dict[str, Array], rows: dict[str, Array]) -> Array:
        weights = jnp.log(jnp.stack([z["theta"], 1 - z["theta"]]))
        return jnp.sum(logsumexp(weights + norm.logpdf(rows["y"][:, None], z["mu"], z["sigma"]), axis=1))

    latents = {"mu": isvi.ordered(2), "sigma": isvi.positive(2, via="exp"), "theta": isvi.unit_interval()}
    return Problem(isvi.Model(latents, log_prior, log_likelihood), {"y": np.asarray(data["y"], float)})


def drive(data: Data) -> Problem:
    """A hidden Markov model, its states summed out. Exponential(rate) has the density rate exp(-rate x)."""
    u, v, alpha = (np.asarray(data[name], float) for name in ("u", "v", "alpha"))

    def log_density(z: dict[str, Array]) -> Array:
        phi, rate, theta = z["phi"], z["lambda"], jnp.stack([z["theta1"], z["theta2"]])
        emissions = jnp.log(phi) - phi * u[:, None] + jnp.log(rate) - rate * v[:, None]

        def forward(before: Array, emission: Array) -> tuple[Array, None]:
            return logsumexp(before[:, None] + jnp.log(theta), axis=0) + emission, None

        last, _ = jax.lax.scan(forward, emissions[0], emissions[1:])
        rates = norm.logpdf(phi, jnp.array([0.0, 3.0])) + norm.logpdf(rate, jnp.array([0.0, 3.0]))
        return logsumexp(last) + jnp.sum((alpha - 1) * jnp.log(theta)) + jnp.sum(rates)

    latents = {"theta1": isvi.simplex(2), "theta2": isvi.simplex(2)}
    ordered = {
        "phi": isvi.constrained(constraints.positive_ordered_vector, 2),
        "lambda": isvi.constrained(constraints.positive_ordered_vector, 2),
    }
    return Problem(isvi.Model({**latents, **ordered}, log_density), None)


def elimination(data: Data) -> Problem:
    """One compartment with first-order absorption and Michaelis-Menten elimination, by Runge-Kutta steps."""
    times, measured = np.asarray(data["times"], float), np.asarray(data["C_hat"], float)
    dose, volume, steps = float(data["D"]), float(data["V"]), 20

    def log_density(z: dict[str, Array]) -> Array:
        def slope(time: Array, level: Array) -> Array:
            into = jnp.exp(-z["k_a"] * time) * dose * z["k_a"] / volume
            return into - z["V_m"] / volume * level / (z["K_m"] + level)

        def advance(level: Array, interval: Array) -> tuple[Array, Array]:
            start, width = interval[0], (interval[1] - interval[0]) / steps

            def step(number: int, level: Array) -> Array:
                time = start + number * width
                first = slope(time, level)
                second = slope(time + width / 2, level + width / 2 * first)
                third = slope(time + width / 2, level + width / 2 * second)
                fourth = slope(time + width, level + width * third)
                return level + width / 6 * (first + 2 * second + 2 * third + fourth)

            level = jax.lax.fori_loop(0, steps, step, level)
            return level, level

        starts = np.concatenate([[float(data["t0"])], times[:-1]])
        intervals = jnp.asarray(np.stack([starts, times], axis=1), z["k_a"].dtype)
        _, levels = jax.lax.scan(advance, jnp.zeros_like(z["k_a"]), intervals)
        prior = sum(half_cauchy(value, 1.0) for value in z.values())
        return jnp.sum(norm.logpdf(np.log(measured), jnp.log(levels), z["sigma"])) + prior

    latents = {name: isvi.positive(via="exp") for name in ("k_a", "K_m", "V_m", "sigma")}
    return Problem(isvi.Model(latents, log_density), None)


MODELS: dict[str, Callable[[Data], Problem]] = {
    "sblrc-blr": sblrc,
    "kidiq-kidscore_interaction": kidiq,
    "earnings-logearn_interaction": earnings,
    "nes1980-nes": nes,
    "mesquite-logmesquite": mesquite,
    "arK-arK": autoregression,
    "diamonds-diamonds": diamonds,
    "low_dim_gauss_mix-low_dim_gauss_mix": mixture,
    "kilpisjarvi_mod-kilpisjarvi": kilpisjarvi,
    "garch-garch11": garch,
    "eight_schools-eight_schools_noncentered": eight_schools,
    "mesquite-mesquite": raw_mesquite,
    "bball_drive_event_0-hmm_drive_0": drive,
    "one_comp_mm_elim_abs-one_comp_mm_elim_abs": elimination,
}
REGRESSIONS = tuple(MODELS)[:7]
"""Where full rank must be right to 0.1 sd, and mean field to 0.3."""
HARD = tuple(MODELS)[8:]
"""Where the approximation may be poor, if the diagnostic says so."""
