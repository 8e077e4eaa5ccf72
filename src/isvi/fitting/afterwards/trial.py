"""What trying a warp takes: fits to records, and records where the bent q is. All but the model in double precision."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, PRNGKeyArray

from isvi.auto.dense import MEAN_TOLERANCE, SD_TOLERANCE
from isvi.auto.warping import bound, fit_forward, fit_warp, moments, straight
from isvi.core.compiling import A_LITTLE, compiled_once, on_cpu
from isvi.families import Approximation
from isvi.families.warped import WarpedParams
from isvi.memory.record import Record
from isvi.results.status import some

NOTHING = 0.003
"""Nats between the Gaussian and the bent q that make no difference: no share of the mass is moved that is as large as
four in a hundred."""
NOISE = 4000
"""Draws of q, always of the same noise, by which means and sds of two of them are compared."""

Double = Float[np.ndarray, "..."]


class Trial:
    """Fits of a bent q to records.

    Args:
        approximation: what is bent.
        evaluate: log joints and gradients at draws, which have the precision that it wants.
        key: what is random follows from it.
        dtype: in which the model is evaluated.
        capacity: how many records there may be.

    Attributes:
        evaluated: model gradients that it took so far.
    """

    def __init__(
        self,
        approximation: Approximation,
        evaluate: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]],
        key: PRNGKeyArray,
        dtype: Any,
        capacity: int,
    ) -> None:
        self.evaluated = 0
        self._approximation, self._evaluate, self._key = approximation, evaluate, key
        self._dtype, self._capacity = dtype, capacity
        with jax.enable_x64(True):
            estimator = bound(approximation)
            self._fit = jax.jit(
                lambda start, pool: fit_warp(estimator, start, pool).params, compiler_options=on_cpu(A_LITTLE)
            )
            self._forward = jax.jit(
                lambda start, draws, shares: fit_forward(approximation, start, draws, shares),
                compiler_options=on_cpu(A_LITTLE),
            )
            density = jax.vmap(lambda params, z: approximation.log_density(params, z)[0], (None, 0))
            self._density = compiled_once(density)
            self._draw = compiled_once(approximation.draw, static_argnums=2)
            self._moments = compiled_once(lambda params, noise: moments(approximation, params, noise))

    def begin_with(self, records: Record) -> None:
        """Fit to these, which have a leading axis, and forget all others."""
        self.pool: Record = jax.tree.map(_in_double, records)
        self._own: Double = np.asarray(self.pool.log_density[..., 0])
        self._parts: list[tuple[int, WarpedParams]] = []

    def straight(self, location: Double, factor: Double) -> tuple[WarpedParams, WarpedParams]:
        """The Gaussian, as one that can be bent, in two ways."""
        with jax.enable_x64(True):
            return straight(location, factor, self.pool)

    def fit(self, start: WarpedParams) -> WarpedParams:
        """A bent q, fitted to all records so far."""
        return self._fitted(start, self.pool)

    def _fitted(self, start: WarpedParams, records: Record) -> WarpedParams:
        # Always of the same shape, so that one program is compiled: what fills it up has no share.
        number, missing = len(records.batch), self._capacity - len(records.batch)
        filled = jax.tree.map(lambda leaf: np.concatenate([leaf, np.repeat(leaf[-1:], missing, axis=0)]), records)
        with jax.enable_x64(True):
            share = jnp.asarray(np.arange(self._capacity) < number, float)
            return self._fit(start, filled._replace(share=share))

    def fit_forward(self, start: WarpedParams) -> WarpedParams:
        """A bent q, fitted to all records so far by their importance weights, none of which is taken for too large."""
        flat = self.pool.draws.reshape(-1, self.pool.draws.shape[-1])
        ratios = np.ravel(self.pool.log_joint - self.pool.log_density[..., 0])
        weights = np.exp(ratios - ratios.max())
        weights = np.minimum(weights, weights.mean() * np.sqrt(len(weights)))
        missing = 2 * self._capacity - len(flat)
        with jax.enable_x64(True):
            filled = jnp.asarray(np.concatenate([flat, np.repeat(flat[-1:], missing, axis=0)]))
            shares = jnp.asarray(np.concatenate([weights / weights.sum(), np.zeros(missing)]))
            return self._forward(start, filled, shares)

    def records(self, number: int, params: WarpedParams, count: int) -> Record:
        """Fresh ones, of two draws each, that together take so many model gradients."""
        with jax.enable_x64(True):
            draws = self._draw(jax.random.fold_in(self._key, number), params, count)
        seen = np.asarray(draws, self._dtype)  # as the model sees them
        log_joint, gradient = self._evaluate(seen)
        density = self.log_density(params, _in_double(seen))
        self.evaluated += count
        pairs = count // 2
        draws, density, log_joint, gradient = (
            _in_double(one).reshape(pairs, 2, *one.shape[1:]) for one in (seen, density[:, None], log_joint, gradient)
        )
        made: Any = (draws, density, log_joint, gradient, np.zeros(pairs, np.int32), np.ones(pairs))
        return Record(*made)

    def add(self, records: Record, drawn_from: WarpedParams, gaussian: WarpedParams) -> None:
        """To those that are fitted to, but for what is not finite.

        All of them count as drawn from the mixture of everything that was drawn from (Veach and Guibas 1995): no weight
        is then larger than what the newest q's share of the records allows."""
        finite = np.isfinite(records.log_joint).all(axis=1) & np.isfinite(records.gradient).all(axis=(1, 2))
        fresh = jax.tree.map(lambda leaf: leaf[finite], records)
        self._parts = [*self._parts, (len(fresh.batch), drawn_from)]
        own = np.concatenate([self._own, self._density_of(gaussian, fresh.draws)])
        self._own = own
        pool = jax.tree.map(lambda old, new: np.concatenate([old, new]), self.pool, fresh)
        densities = [own, *(self._density_of(params, pool.draws) for _, params in self._parts)]
        counts = np.array([len(own) - sum(count for count, _ in self._parts), *(count for count, _ in self._parts)])
        shares = np.log(np.maximum(counts, 1) / len(own))
        mixture = np.logaddexp.reduce(np.stack(densities) + shares[:, None, None], axis=0)
        self.pool = pool._replace(log_density=mixture[..., None])

    def _density_of(self, params: WarpedParams, draws: Double) -> Double:
        return self.log_density(params, draws.reshape(-1, draws.shape[-1])).reshape(draws.shape[:-1])

    def log_density(self, params: WarpedParams, draws: Double) -> Double:
        with jax.enable_x64(True):
            return np.asarray(self._density(params, draws))

    def moved(self, params: WarpedParams, gaussian: WarpedParams) -> bool:
        """Whether the bent q is another one than the Gaussian, by the KL between them."""
        with jax.enable_x64(True):
            draws = np.asarray(self._draw(self._key, params, NOISE))
        ratios = self.log_density(params, draws) - self.log_density(gaussian, draws)
        return not np.mean(ratios) < NOTHING

    def apart(self, one: WarpedParams, other: WarpedParams) -> tuple[Double, Double]:
        """By how much the means of two of them differ, in sds, and the logarithms of their sds."""
        (means, sds), (other_means, other_sds) = self._shape(one), self._shape(other)
        with np.errstate(all="ignore"):
            return np.abs(means - other_means) / sds, np.abs(np.log(sds / other_sds))

    def in_doubt(self, params: WarpedParams, judged: Record, labels: Sequence[str]) -> str | None:
        """What a fit to fresh records of q, and no others, says otherwise. They have no part in ``params``, and weights
        near 1: what they do not confirm may be chance, or the doing of large weights. Half of what is promised is asked
        for."""
        off = self.apart(params, self._fitted(params, judged))
        told = [
            f"{what} of {some(list(labels), ~(differs < tolerance))}"
            for what, differs, tolerance in zip(
                ("the mean", "the sd"), off, (MEAN_TOLERANCE / 2, SD_TOLERANCE / 2), strict=True
            )
            if not (differs < tolerance).all()
        ]
        return f"{' and '.join(told)} may be off" if told else None

    def _shape(self, params: WarpedParams) -> tuple[Double, Double]:
        noise = np.random.default_rng(0).normal(size=(NOISE, self._approximation.dim))
        with jax.enable_x64(True):
            means, sds = self._moments(params, noise)
        return np.asarray(means), np.asarray(sds)


def _in_double(leaf: np.ndarray) -> np.ndarray:
    return np.asarray(leaf, np.float64) if np.issubdtype(np.asarray(leaf).dtype, np.floating) else np.asarray(leaf)
