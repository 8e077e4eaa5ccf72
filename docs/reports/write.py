"""``python docs/reports/write.py``: writes the two reports beside it."""

from pathlib import Path

import jax.numpy as jnp
from jax.scipy.stats import norm

import isvi
from isvi.datasets import LogisticRegression, load_flights

HERE = Path(__file__).parent


def flights() -> isvi.Fit:
    """The demo's logistic regression, with its default family."""
    loaded = load_flights()
    problem = LogisticRegression(loaded.x, loaded.late)
    return isvi.fit(problem.model(), problem.data, seed=0, progress=False)


def log_prior(z):
    """Neal's funnel: the scale of nine values is itself unknown, and no data say what it is."""
    return norm.logpdf(z["log_scale"], 0, 3) + jnp.sum(norm.logpdf(z["x"], 0, jnp.exp(z["log_scale"] / 2)))


def funnel() -> isvi.Fit:
    model = isvi.Model({"log_scale": isvi.real(), "x": isvi.real(9)}, log_prior)
    return isvi.fit(model, seed=0, progress=False)


if __name__ == "__main__":
    flights().report(HERE / "flights.html", num_samples=1500)
    funnel().report(HERE / "funnel.html")
