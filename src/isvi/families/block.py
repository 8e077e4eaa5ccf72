"""Gaussians with full covariance inside blocks: ``Block`` and, with a single block, ``FullRank``."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from isvi.core.errors import ConfigurationError, require
from isvi.core.latents import Latent
from isvi.families.base import Factors, Plan
from isvi.families.gaussian import DiagonalGaussian
from isvi.families.location_scale import LocationScale

LARGEST_DEFAULT_BLOCK = 10
"""Weights of stored records survive several steps up to about ten dimensions (paper, section 5.1)."""


class BlockParams(NamedTuple):
    """z = loc + L eps per block. ``factor`` is L with the logarithm of its diagonal on the diagonal;
    entries above the diagonal are ignored."""

    loc: Float[Array, " dim"]
    factor: Float[Array, "blocks size size"]

    @property
    def cholesky(self) -> Float[Array, "blocks size size"]:
        log_diagonal = jnp.diagonal(self.factor, axis1=1, axis2=2)
        return jnp.tril(self.factor, -1) + jnp.exp(log_diagonal)[:, :, None] * jnp.eye(self.factor.shape[-1])


@dataclass(frozen=True)
class GaussianBlocks(LocationScale):
    """``count`` Gaussians of ``size`` dimensions each, with a full covariance."""

    gaussian: ClassVar[bool] = True

    def init(self, location: Array, scale: Array) -> BlockParams:
        log_diagonal = jnp.log(scale).reshape(self.count, self.size)
        return BlockParams(location, log_diagonal[:, :, None] * jnp.eye(self.size, dtype=location.dtype))

    def transform(self, params: BlockParams, noise: Array) -> Array:
        moved = jnp.einsum("bij,bj->bi", params.cholesky, noise.reshape(self.count, self.size))
        return params.loc + moved.reshape(-1)

    def standardize(self, params: BlockParams, z: Array) -> Array:
        centred = (z - params.loc).reshape(self.count, self.size, 1)
        return jax.lax.linalg.triangular_solve(params.cholesky, centred, left_side=True, lower=True).reshape(-1)

    def log_jacobian(self, params: BlockParams, z: Array) -> Array:
        return jnp.trace(params.factor, axis1=1, axis2=2)

    def location(self, params: BlockParams) -> Array:
        return params.loc

    def scale(self, params: BlockParams) -> Array:
        return jnp.sqrt(jnp.sum(params.cholesky**2, axis=2)).reshape(-1)

    def match(self, location: Array, precision: Array) -> BlockParams:
        if precision.ndim == 1:
            return self.init(location, precision**-0.5)
        return self._with_cholesky(location, jnp.linalg.cholesky(jnp.linalg.inv(self._blocks(precision))))

    def factor(self, params: BlockParams) -> Array:
        return jax.scipy.linalg.block_diag(*params.cholesky)

    def with_factor(self, location: Array, factor: Array) -> BlockParams:
        return self._with_cholesky(location, self._blocks(factor))

    def _blocks(self, matrix: Array) -> Array:
        """The blocks on the diagonal."""
        tiles = matrix.reshape(self.count, self.size, self.count, self.size)
        return tiles[jnp.arange(self.count), :, jnp.arange(self.count)]

    def _with_cholesky(self, location: Array, cholesky: Array) -> BlockParams:
        diagonal = jnp.diagonal(cholesky, axis1=1, axis2=2)
        factor = jnp.tril(cholesky, -1) + jnp.log(diagonal)[:, :, None] * jnp.eye(self.size, dtype=location.dtype)
        return BlockParams(location, factor)

    def natural(self, params: BlockParams, gradient: BlockParams) -> BlockParams:
        """In terms of A with dL = L A, lower triangular, the Fisher information is diagonal: 1 below the diagonal, 2 on
        it. Hence dL = L Phi(L' grad_L), where Phi keeps the lower triangle and halves the diagonal."""
        cholesky, diagonal = params.cholesky, jnp.eye(self.size, dtype=params.loc.dtype)
        scales = _diagonal_as_column(cholesky)
        by_cholesky = jnp.tril(gradient.factor, -1) + gradient.factor / scales * diagonal
        relative = jnp.tril(jnp.swapaxes(cholesky, 1, 2) @ by_cholesky) / (1 + diagonal)
        whitened = jnp.einsum("bji,bj->bi", cholesky, gradient.loc.reshape(self.count, self.size))
        loc = jnp.einsum("bij,bj->bi", cholesky, whitened).reshape(-1)
        return BlockParams(loc, jnp.tril(cholesky @ relative, -1) + relative * diagonal)

    def squared_length(self, params: BlockParams, step: BlockParams) -> Array:
        cholesky, diagonal = params.cholesky, jnp.eye(self.size, dtype=params.loc.dtype)
        moved = jnp.tril(step.factor, -1) + step.factor * _diagonal_as_column(cholesky) * diagonal
        both = jnp.concatenate([moved, step.loc.reshape(self.count, self.size, 1)], axis=2)
        relative = jax.lax.linalg.triangular_solve(cholesky, both, left_side=True, lower=True)
        inner = relative[:, :, :-1] ** 2 * (1 + diagonal)
        return jnp.sum(inner, axis=(1, 2)) + jnp.sum(relative[:, :, -1] ** 2, axis=1)

    def entropy(self, params: BlockParams) -> Array:
        return jnp.trace(params.factor, axis1=1, axis2=2) + 0.5 * self.size * np.log(2 * np.pi * np.e)


def _diagonal_as_column(matrices: Float[Array, "blocks size size"]) -> Float[Array, "blocks size 1"]:
    return jnp.diagonal(matrices, axis1=1, axis2=2)[:, :, None]


def cover(sizes: Sequence[int]) -> tuple[Factors, ...]:
    """Factors for blocks of the given sizes, in order; runs of equal size share one batched piece."""
    runs = ((size, len(list(run))) for size, run in groupby(sizes))
    return tuple(DiagonalGaussian(count) if size == 1 else GaussianBlocks(count, size) for size, count in runs)


@dataclass(frozen=True)
class Block:
    """A Gaussian with full covariance inside each block, in unconstrained space.

    Attributes:
        blocks: a partition of the latents' names, for instance ``[["a", "b"], ["w"]]``. By default each
            latent of at most ten unconstrained entries is one block, and every larger one is factorised
            completely (neighbours in a long vector are rarely the entries that correlate, and stored
            records of larger blocks lose their weight sooner).
        size: if given, latents larger than this are split into consecutive blocks of this many entries
            instead of being factorised, and no block is larger.
    """

    blocks: Sequence[Sequence[str]] | None = None
    size: int | None = None

    def plan(self, latents: Mapping[str, Latent]) -> Plan:
        require(
            self.size is None or self.size >= 1,
            ConfigurationError,
            f"Block(size=...) must be at least 1; got {self.size}.",
        )
        groups = [[name] for name in latents] if self.blocks is None else [list(group) for group in self.blocks]
        named = [name for group in groups for name in group]
        require(
            sorted(named) == sorted(latents),
            ConfigurationError,
            f"Block(blocks=...) must name every latent exactly once: expected {sorted(latents)}, got {sorted(named)}.",
        )
        sized = [(group, self._split(sum(latents[name].unconstrained_size for name in group))) for group in groups]
        # Blocks of equal size next to each other are computed together.
        sized.sort(key=lambda pair: pair[1][0])
        order = tuple(name for group, _ in sized for name in group)
        return Plan(order, constrained=False, factors=cover([size for _, sizes in sized for size in sizes]))

    def _split(self, total: int) -> list[int]:
        if self.size is not None:
            return [self.size] * (total // self.size) + [total % self.size] * (total % self.size > 0)
        if self.blocks is None and total > LARGEST_DEFAULT_BLOCK:
            return [1] * total
        return [total]


@dataclass(frozen=True)
class FullRank:
    """One Gaussian with a full covariance over all latents, in unconstrained space."""

    def plan(self, latents: Mapping[str, Latent]) -> Plan:
        return Block([list(latents)]).plan(latents)
