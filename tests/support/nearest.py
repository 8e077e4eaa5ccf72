"""The best diagonal plus low rank by numerical optimisation, which knows nothing of how the library finds it."""

import numpy as np
from scipy.optimize import minimize

Matrix = np.ndarray


def divergence(covariance: Matrix, precision: Matrix) -> float:
    """KL(N(0, covariance) || N(0, precision^-1))."""
    log_determinants = np.linalg.slogdet(covariance)[1] + np.linalg.slogdet(precision)[1]
    return 0.5 * (np.trace(precision @ covariance) - log_determinants - len(precision))


def best(precision: Matrix, rank: int, starts: int = 2) -> Matrix:
    """The covariance of least divergence, by L-BFGS over D and V in units in which diag(P) is 1."""
    dim, unit = len(precision), np.diagonal(precision) ** -0.5
    scaled = precision * np.outer(unit, unit)

    def covariance(moves: np.ndarray) -> Matrix:
        along = moves[dim:].reshape(dim, rank)
        return np.diag(np.exp(moves[:dim])) + along @ along.T

    def objective(moves: np.ndarray) -> tuple[float, np.ndarray]:
        found = covariance(moves)
        slope = scaled - np.linalg.inv(found)
        along = moves[dim:].reshape(dim, rank)
        own = 0.5 * np.diagonal(slope) * np.exp(moves[:dim])
        return divergence(found, scaled), np.concatenate([own, (slope @ along).ravel()])

    random = np.random.default_rng(0)
    begins = [np.concatenate([-0.5 * np.ones(dim), random.normal(size=dim * rank)]) for _ in range(starts)]
    options = {"maxiter": 5000, "maxfun": 10_000, "ftol": 1e-14, "gtol": 1e-8}
    ends = [minimize(objective, one, jac=True, method="L-BFGS-B", options=options) for one in begins]
    return covariance(min(ends, key=lambda end: end.fun).x) * np.outer(unit, unit)
