"""Bayesian logistic regression whose best answer can be computed: what a fit should find."""

from dataclasses import dataclass
from functools import cached_property

import jax.numpy as jnp
import numpy as np
from jax.nn import log_sigmoid
from jax.scipy.stats import norm
from jaxtyping import Array

from isvi.core.latents import real
from isvi.model.model import Model

QUADRATURE_NODES = 7
ROWS_AT_ONCE = 20_000


@dataclass(frozen=True)
class LogisticRegression:
    """p(y = 1) = sigmoid(x w) with w ~ Normal(0, prior_sd^2), and reference answers in float64.

    Attributes:
        x: ``(rows, coefficients)``.
        y: ``(rows,)``, of zeros and ones.
        prior_sd: standard deviation of every coefficient's prior.
    """

    x: np.ndarray
    y: np.ndarray
    prior_sd: float = 5.0

    @property
    def data(self) -> dict[str, np.ndarray]:
        return {"x": self.x, "y": self.y}

    def model(self) -> Model:
        def log_likelihood(z: dict[str, Array], batch: dict[str, Array]) -> Array:
            return jnp.sum(log_sigmoid((2 * batch["y"] - 1) * (batch["x"] @ z["w"])))

        return Model(
            latents={"w": real(self.x.shape[1])},
            log_prior=lambda z: jnp.sum(norm.logpdf(z["w"], scale=self.prior_sd)),
            log_likelihood=log_likelihood,
        )

    @cached_property
    def laplace(self) -> tuple[np.ndarray, np.ndarray]:
        """The posterior mode, by Newton's method on all rows, and the inverse of the curvature there."""
        point = np.zeros(self.x.shape[1])
        for _ in range(50):
            _, gradient, curvature = self._expectations(point, np.zeros_like(point), full=True)
            step = np.linalg.solve(curvature, gradient)
            point = point + step
            if np.abs(step).max() < 1e-8:
                break
        return point, np.linalg.inv(curvature)

    @cached_property
    def mean_field_optimum(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean and standard deviations of the best Gaussian with independent coefficients."""
        mean, covariance = self.laplace
        sd = 1 / np.sqrt(np.diag(np.linalg.inv(covariance)))
        for _ in range(50):
            _, gradient, curvature = self._expectations(mean, sd, full=False)
            # The curvature at the mode is close to the average one: Newton's step with it converges quickly.
            step, new_sd = covariance @ gradient, 1 / np.sqrt(curvature)
            change = max(np.abs(step / sd).max(), np.abs(new_sd / sd - 1).max())
            mean, sd = mean + step, new_sd
            if change < 1e-5:
                break
        return mean, sd

    def elbo(self, mean: np.ndarray, sd: np.ndarray) -> float:
        """The ELBO of a Gaussian with independent coefficients: by quadrature, without Monte Carlo noise.

        Under it the predictor of each row is a Gaussian in one dimension, for which a few nodes are plenty.
        """
        mean, sd = np.asarray(mean, np.float64), np.asarray(sd, np.float64)
        expected_log_joint, _, _ = self._expectations(mean, sd, full=False)
        return float(expected_log_joint + np.sum(np.log(sd)) + 0.5 * len(sd) * np.log(2 * np.pi * np.e))

    def _expectations(self, mean: np.ndarray, sd: np.ndarray, full: bool) -> tuple[float, np.ndarray, np.ndarray]:
        """E_q of the log joint, of its gradient, and of its negative Hessian (or that one's diagonal)."""
        nodes, weights = np.polynomial.hermite_e.hermegauss(QUADRATURE_NODES if sd.any() else 1)
        weights = weights / weights.sum()
        precision = 1 / self.prior_sd**2
        value = -0.5 * float(np.sum((mean**2 + sd**2) * precision + np.log(2 * np.pi * self.prior_sd**2)))
        gradient = -mean * precision
        curvature = np.eye(len(mean)) * precision if full else np.full(len(mean), precision)
        for start in range(0, len(self.x), ROWS_AT_ONCE):
            x = self.x[start : start + ROWS_AT_ONCE].astype(np.float64)
            y = self.y[start : start + ROWS_AT_ONCE].astype(np.float64)
            centre, width = x @ mean, np.sqrt(x**2 @ sd**2)
            predictor = centre[:, None] + width[:, None] * nodes
            decay = np.exp(-np.abs(predictor))
            probability = np.where(predictor >= 0, 1, decay) / (1 + decay)
            log_normalizer = np.maximum(predictor, 0) + np.log1p(decay)
            value += float(y @ centre - np.sum(log_normalizer @ weights))
            gradient = gradient + x.T @ (y - probability @ weights)
            row_curvature = (probability * (1 - probability)) @ weights
            curvature = curvature + ((x.T * row_curvature) @ x if full else row_curvature @ x**2)
        return value, gradient, curvature
