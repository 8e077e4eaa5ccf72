"""Candidates for the posterior's draws: q's own, and more from where these say that q may have missed something.

Weights p(x, z) / q(z) of q's draws alone say nothing about what lies beyond q's edge. So only half of the draws are
q's. A quarter comes from a Student t around the parabola through log p over these, and a quarter from one with the
weighted moments of all so far. Each draw is weighed by p(x, z) over the *mixture* of the three densities (the
"deterministic mixture" of Veach and Guibas 1995; adaptive as in Cornuet, Marin, Mira and Robert 2012), so that where q
is right, no weight is above two.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jaxtyping import Float

from isvi.results.weights.evaluation import Evaluation, Evaluator, Float64
from isvi.results.weights.proposals import StudentProposal, by_curvature, by_moments, student
from isvi.results.weights.smoothing import smooth
from isvi.results.weights.unconstrained import Unconstrained

if TYPE_CHECKING:
    from isvi.results.fit import Fit

LARGEST_SIZE = 50
"""Dimensions up to which there is more than q's own draws: beyond, the wider draws all miss the posterior."""
DRAWS_PER_DIMENSION = 10
"""Draws of q from which its covariance is taken; where there are fewer, its variances only."""
NUDGED_DRAWS = 8
"""Draws of q at which the log joint is evaluated again, twice, a nudge away."""
NUDGE = 1e-3
"""In sds of q: small enough for a parabola (its curvature adds a millionth of itself), large enough for a model that
rounds its parameters to single precision to notice it."""
SCOUTS = (3.0, 6.0)
"""Widths of a few heavy-tailed draws all around q, in its sds: in ten dimensions a skirt five times as wide, with a
twentieth of the mass, is where neither q nor what is made from its draws ever comes."""
DRAWS_PER_SCOUT = 64
"""One in so many is a scout, of each width."""
SCOUTS_DF = 3.0
FEWEST_FOR_MOMENTS = 3
"""Effective draws per dimension from which a weighted covariance is worth having."""
DEEPEST_PER_DIMENSION = 12.0
"""Draws at which log p is further below its largest value than this, times the dimensions plus three, say nothing about
its curvature where the mass is. (A Gaussian's own draws are half a nat per dimension below.)"""


@dataclass(frozen=True)
class Candidates:
    """Evaluated draws, of q and of other proposals.

    Attributes:
        draws: ``(draws, dim)``: in the coordinates of the approximation; q's come first.
        log_joint: log p(x, z) of all rows.
        log_density: log q(z).
        log_proposal: the log density of the mixture that they all are from.
        evaluation: of q's own draws.
        noise: what the log joint is uncertain by, in nats, for rounding: from evaluating it at neighbouring points.
        passes: passes over the data that all of it took.
    """

    draws: Float[np.ndarray, "draws dim"]
    log_joint: Float64
    log_density: Float64
    log_proposal: Float64
    evaluation: Evaluation
    noise: float
    passes: int

    @classmethod
    def of(cls, evaluation: Evaluation) -> "Candidates":
        """q's own draws and no others."""
        one = evaluation
        return cls(one.draws, one.log_joint, one.log_density, one.log_density, one, np.nan, one.passes)

    @property
    def own(self) -> int:
        """How many are q's."""
        return self.evaluation.passes


def explore(fit: "Fit", num_samples: int, seed: int) -> Candidates:
    """Draw and evaluate ``num_samples`` candidates: as many passes over the data."""
    space = Unconstrained(fit.approximation.coordinates)
    split = _Split.of(num_samples, space.plain.size)
    evaluator = Evaluator(fit, at_once=max(1, num_samples // 4))
    evaluation = evaluator.evaluate(split.own, seed)
    frame = Frame.of(space.enter(evaluation.draws)[0])
    if frame is None:
        return Candidates.of(evaluation)
    pool = _Pool.of(evaluation, space, frame)
    random = np.random.default_rng([seed, num_samples])
    noise = _noise(pool, evaluator, space, random, split.nudged)
    for count, scouts in zip(split.further, split.scouts, strict=True):
        around = [(_scout(pool.x.shape[1], width), scouts) for width in SCOUTS if scouts]
        chosen = [(_next_proposal(pool), count - scouts * len(SCOUTS)), *around]
        pool = pool.more(chosen, evaluator, space, random)
    return Candidates(pool.z, pool.log_joint, pool.log_density, pool.log_proposal, evaluation, noise, num_samples)


class _Split(NamedTuple):
    """What the passes over the data are spent on."""

    own: int
    nudged: int
    further: tuple[int, ...]
    scouts: tuple[int, ...]
    """Of these, of each width."""

    @classmethod
    def of(cls, num_samples: int, size: int) -> "_Split":
        nudged = min(NUDGED_DRAWS, num_samples // 25)
        if size > LARGEST_SIZE:
            return cls(num_samples - 2 * nudged, nudged, (), ())
        quarter = num_samples // 4
        further = (quarter - 2 * nudged, quarter)
        return cls(num_samples - 2 * quarter, nudged, further, (0, num_samples // DRAWS_PER_SCOUT))


@dataclass(frozen=True)
class Frame:
    """Coordinates x in which q has mean 0 and covariance 1: u = mean + factor x. A factor of one axis is a diagonal."""

    mean: Float[np.ndarray, " size"]
    factor: Float[np.ndarray, "size size"] | Float[np.ndarray, " size"]

    @classmethod
    def of(cls, draws: Float[np.ndarray, "draws size"]) -> "Frame | None":
        """From draws of q; None if these are not finite, or all the same."""
        finite = draws[np.isfinite(draws).all(axis=1)]
        if len(finite) < len(draws) / 2:
            return None
        mean, sd = finite.mean(axis=0), finite.std(axis=0)
        if not (np.isfinite(sd).all() and (sd > 0).all()):
            return None
        size = len(mean)
        if size > LARGEST_SIZE or len(finite) < DRAWS_PER_DIMENSION * size:
            return cls(mean, sd)
        scaled = (finite - mean) / sd
        correlation = scaled.T @ scaled / len(finite)
        return cls(mean, sd[:, None] * np.linalg.cholesky(correlation + 1e-9 * np.eye(size)))

    @property
    def log_determinant(self) -> float:
        return float(np.log(self.factor if self.diagonal else np.diagonal(self.factor)).sum())

    @property
    def diagonal(self) -> bool:
        return self.factor.ndim == 1

    @property
    def covariance(self) -> np.ndarray:
        """Of q; its diagonal, if no more is known."""
        return self.factor**2 if self.diagonal else self.factor @ self.factor.T

    def enter(self, u: np.ndarray) -> np.ndarray:
        return (u - self.mean) / self.factor if self.diagonal else np.linalg.solve(self.factor, (u - self.mean).T).T

    def leave(self, x: Any) -> Any:
        """Of points along a leading axis, or of one; of JAX's arrays too."""
        return self.mean + (x * self.factor if self.diagonal else x @ self.factor.T)

    def along(self, gradients: np.ndarray) -> np.ndarray:
        """Gradients in u as gradients in x."""
        return gradients * self.factor if self.diagonal else gradients @ self.factor


@dataclass(frozen=True)
class _Pool:
    """The candidates so far, in the coordinates of the approximation (z) and in those of a frame (x)."""

    frame: Frame
    z: Float[np.ndarray, "draws dim"]
    x: Float[np.ndarray, "draws size"]
    log_jacobian: Float64
    """log|dz/dx|."""
    log_joint: Float64
    log_density: Float64
    counts: tuple[int, ...]
    proposals: tuple[StudentProposal, ...]

    @classmethod
    def of(cls, evaluation: Evaluation, space: Unconstrained, frame: Frame) -> "_Pool":
        u, log_jacobian = space.enter(evaluation.draws)
        return cls(
            frame,
            evaluation.draws,
            frame.enter(u),
            log_jacobian + frame.log_determinant,
            evaluation.log_joint,
            evaluation.log_density,
            (len(evaluation.draws),),
            (),
        )

    def more(
        self,
        proposals: list[tuple[StudentProposal, int]],
        evaluator: Evaluator,
        space: Unconstrained,
        random: np.random.Generator,
    ) -> "_Pool":
        """With draws from further proposals, so many of each."""
        x = np.concatenate([one.draw(random, count) for one, count in proposals])
        z, log_jacobian = space.leave(self.frame.leave(x))
        return _Pool(
            self.frame,
            np.concatenate([self.z, z]),
            np.concatenate([self.x, x]),
            np.concatenate([self.log_jacobian, log_jacobian + self.frame.log_determinant]),
            np.concatenate([self.log_joint, evaluator.log_joint(z)]),
            np.concatenate([self.log_density, evaluator.log_density(z)]),
            (*self.counts, *(count for _, count in proposals)),
            (*self.proposals, *(one for one, _ in proposals)),
        )

    @property
    def log_proposal(self) -> Float64:
        """The mixture's log density, in z."""
        parts = [one.log_density(self.x) - self.log_jacobian for one in self.proposals]
        with np.errstate(divide="ignore"):
            shares = np.log(np.array(self.counts) / sum(self.counts))
        densities = np.nan_to_num([self.log_density, *parts], nan=-np.inf, posinf=np.inf, neginf=-np.inf)
        return np.logaddexp.reduce(densities + shares[:, None], axis=0)


def _scout(size: int, width: float) -> StudentProposal:
    return StudentProposal(np.zeros(size), width * np.eye(size), SCOUTS_DF)


def _next_proposal(pool: _Pool) -> StudentProposal:
    """From the weighted moments of all that was seen, if there are any to speak of, or from the curvature of log p."""
    log_joint = pool.log_joint + pool.log_jacobian
    usable = np.isfinite(log_joint) & np.isfinite(pool.x).all(axis=1)
    size = pool.x.shape[1]
    if usable.sum() < 2 * size:
        return student(np.zeros(size), np.eye(size))
    if pool.proposals:
        weights = smooth(np.where(usable, pool.log_joint - pool.log_proposal, -np.inf))[0]
        if np.exp(-np.logaddexp.reduce(2 * weights)) >= FEWEST_FOR_MOMENTS * size:
            return by_moments(np.where(usable[:, None], pool.x, 0.0), np.exp(weights))
    near = usable & (log_joint >= log_joint[usable].max() - DEEPEST_PER_DIMENSION * (3 + size))
    return by_curvature(pool.x[near], log_joint[near])


def _noise(pool: _Pool, evaluator: Evaluator, space: Unconstrained, random: np.random.Generator, count: int) -> float:
    """The rounding of the log joint, in nats: second differences over a nudge, of which a smooth function has none."""
    directions = random.normal(size=(count, pool.x.shape[1]))
    directions *= NUDGE / np.linalg.norm(directions, axis=1, keepdims=True)
    sides = np.concatenate([pool.x[:count] + directions, pool.x[:count] - directions])
    z, log_jacobian = space.leave(pool.frame.leave(sides))
    values = evaluator.log_joint(z) + log_jacobian + pool.frame.log_determinant
    here = pool.log_joint[:count] + pool.log_jacobian[:count]
    with np.errstate(invalid="ignore"):
        bends = values[:count] + values[count:] - 2 * here
    bends = bends[np.isfinite(bends)]
    # The variance of a second difference is six times that of a value.
    return float(np.sqrt(np.mean(bends**2) / 6)) if len(bends) else 0.0
