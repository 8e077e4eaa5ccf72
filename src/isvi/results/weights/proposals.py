"""Where else to look for the posterior's mass: proposals made from what q's own draws have shown.

All of it is in coordinates x in which q has mean 0 and covariance 1.
"""

from dataclasses import dataclass
from math import lgamma

import numpy as np
from jaxtyping import Float

Points = Float[np.ndarray, "points size"]
Values = Float[np.ndarray, " points"]

NARROWEST, WIDEST = 0.2, 8.0
"""Widths of a proposal, in q's sds along any axis. Wider ones come in further rounds, if at all."""
FARTHEST = 6.0
"""How far from q's mean a proposal may be centred, in sds of q or, where it is wider, of the proposal."""
INFLATION = 1.2
"""A proposal is made wider than what it is fitted to: too wide costs a few draws, too narrow makes weights wild."""
WIDTH_IF_CONVEX = 3.0
"""The width along an axis on which log p curves upwards over q, so that no Gaussian fits."""
POINTS_PER_COEFFICIENT = 2.0
"""Points that a least-squares fit of log p needs for each of its coefficients."""


@dataclass(frozen=True)
class StudentProposal:
    """A multivariate Student t: x = location + factor t."""

    location: Float[np.ndarray, " size"]
    factor: Float[np.ndarray, "size size"]
    df: float

    def draw(self, random: np.random.Generator, count: int) -> Points:
        size = len(self.location)
        radius = np.sqrt(self.df / random.chisquare(self.df, size=count))
        return self.location + (random.normal(size=(count, size)) * radius[:, None]) @ self.factor.T

    def log_density(self, x: Points) -> Values:
        size, df = len(self.location), self.df
        noise = np.linalg.solve(self.factor, (x - self.location).T)
        constant = lgamma((df + size) / 2) - lgamma(df / 2) - size / 2 * np.log(df * np.pi)
        constant -= np.log(np.abs(np.diagonal(self.factor))).sum()
        return constant - (df + size) / 2 * np.log1p((noise**2).sum(axis=0) / df)


def student(location: np.ndarray, covariance: np.ndarray) -> StudentProposal:
    """A t around a Gaussian, with tails the heavier the fewer dimensions there are. (In many, the radius of a t with
    few degrees of freedom would hardly ever be the posterior's.)"""
    size = len(location)
    values, axes = np.linalg.eigh((covariance + covariance.T) / 2)
    widths = np.clip(np.sqrt(np.maximum(values, 0.0)), NARROWEST, WIDEST)
    along = axes.T @ location
    centre = axes @ np.clip(along, -FARTHEST * np.maximum(widths, 1), FARTHEST * np.maximum(widths, 1))
    factor = np.linalg.cholesky((axes * (INFLATION * widths) ** 2) @ axes.T)
    return StudentProposal(centre, factor, 3.0 + size / 2)


def by_curvature(x: Points, log_joint: Values) -> StudentProposal:
    """Around the Gaussian whose log density is the parabola through log p over these points, by least squares.

    For a Gaussian posterior it is that posterior, however narrow q is.
    """
    size = x.shape[1]
    rows, columns = np.triu_indices(size)
    if len(x) < POINTS_PER_COEFFICIENT * (1 + size + len(rows)):
        rows = columns = np.arange(size)
    products = x[:, rows] * x[:, columns]
    if len(x) < POINTS_PER_COEFFICIENT * (1 + size + len(rows)):
        return student(np.zeros(size), np.eye(size))
    design = np.concatenate([np.ones((len(x), 1)), x, products], axis=1)
    fitted = np.linalg.lstsq(design, log_joint - log_joint.mean(), rcond=1e-10)[0]
    slope, curvature = fitted[1 : 1 + size], np.zeros((size, size))
    curvature[rows, columns] += fitted[1 + size :]
    curvature[columns, rows] += fitted[1 + size :]
    values, axes = np.linalg.eigh(-curvature)
    variances = np.where(values > 0, 1 / np.maximum(values, WIDEST**-2), WIDTH_IF_CONVEX**2)
    return student(axes @ (variances * (axes.T @ slope)), (axes * variances) @ axes.T)


def by_moments(x: Points, weights: Values) -> StudentProposal:
    """With the weighted mean and covariance, shrunk towards q's as if ``size`` of q's draws had been seen too."""
    size = x.shape[1]
    effective = 1 / np.sum(weights**2)
    share = effective / (effective + size)
    mean = weights @ x
    centred = x - mean
    covariance = (weights[:, None] * centred).T @ centred
    return student(share * mean, share * covariance + (1 - share) * np.eye(size))
