"""Batch and match (Cai et al., ICML 2024), a rival for Gaussians with a full covariance.

In place of the ELBO it lowers a divergence between scores, E_q |grad log q - grad log p|^2 in the metric of q's
covariance. From a batch of draws z_b of the present q with scores g_b of the target, and with their means and
covariances (z, C) and (g, G), each round minimises its estimate plus 2/rate times KL(present q || new q), in closed
form:

    U = rate G + rate/(1 + rate) g g'
    V = S + rate C + rate/(1 + rate) (m - z)(m - z)'
    new S solves  S U S + S = V
    new m = (m + rate (new S g + z)) / (1 + rate)

The paper's rate for round t is (size of the batch) x (dimensions) / (t + 1).
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

Scores = Callable[[np.ndarray], np.ndarray]
"""Gradients of the target's log density at rows of draws."""


class Gaussian(NamedTuple):
    mean: np.ndarray
    covariance: np.ndarray


def update(q: Gaussian, draws: np.ndarray, scores: np.ndarray, rate: float) -> Gaussian:
    """One round."""
    draw, score = draws.mean(axis=0), scores.mean(axis=0)
    share = rate / (1 + rate)
    by_scores = rate * np.cov(scores.T, bias=True).reshape(q.covariance.shape) + share * np.outer(score, score)
    off = q.mean - draw
    by_draws = q.covariance + rate * np.cov(draws.T, bias=True).reshape(q.covariance.shape) + share * np.outer(off, off)
    covariance = solve(by_scores, by_draws)
    return Gaussian((q.mean + rate * (covariance @ score + draw)) / (1 + rate), covariance)


def solve(u: np.ndarray, v: np.ndarray) -> np.ndarray:
    """The positive S with S U S + S = V. With V = K K' it is K f(K' U K) K' and f(x) = 2 / (1 + sqrt(1 + 4 x))."""
    lower = np.linalg.cholesky(v)
    values, vectors = np.linalg.eigh(lower.T @ u @ lower)
    root = lower @ vectors
    return (root * (2 / (1 + np.sqrt(1 + 4 * np.maximum(values, 0))))) @ root.T


def rounds(
    scores: Scores, start: Gaussian, batch: int, rng: np.random.Generator, constant: bool = False
) -> Iterator[Gaussian]:
    """q after every round, without end. A constant rate suits a Gaussian target, where there is nothing to average."""
    q, dim, number = start, len(start.mean), 0
    while True:
        draws = q.mean + rng.normal(size=(batch, dim)) @ np.linalg.cholesky(q.covariance).T
        q = update(q, draws, scores(draws), batch * dim / (1 if constant else number + 1))
        number += 1
        yield q
