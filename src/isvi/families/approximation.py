"""The approximation q: families bound to a model's latents, over one flat vector z."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import accumulate

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from isvi.core.coordinates import Coordinates, lay_out
from isvi.core.errors import ConfigurationError, require
from isvi.core.latents import Latent
from isvi.families.base import Factors, Family, Params, Precision
from isvi.families.block import cover
from isvi.families.gaussian import DiagonalGaussian, MeanField
from isvi.families.location_scale import LocationScale
from isvi.families.low_rank import LowRankGaussian
from isvi.families.nested import NestedGaussian
from isvi.families.warped import WarpedGaussian


@dataclass(frozen=True)
class Approximation:
    """q(z; params) = product over s of q_s(z_s; params), piece after piece.

    With a single piece, ``params`` are that piece's parameters; with several, a tuple of them.
    """

    coordinates: Coordinates
    pieces: tuple[Factors, ...]

    @property
    def dim(self) -> int:
        return sum(piece.dim for piece in self.pieces)

    @property
    def description(self) -> str:
        """The shape, in a few words."""
        if self.diagonal:
            return "independent Gaussians"
        if self.warped:
            return "a warped Gaussian"
        if self.nested:
            drivers = sum(len(piece.drivers) for piece in self.pieces if isinstance(piece, NestedGaussian))
            return f"a Gaussian given {drivers} bent entr{'y' if drivers == 1 else 'ies'} that drive the others"
        if self.low_rank and self.num_factors == 1:
            rank = next(piece.rank for piece in self.pieces if isinstance(piece, LowRankGaussian))
            return f"a Gaussian of a diagonal plus {rank} direction{'s' * (rank > 1)}"
        if self.gaussian:
            return "a full-rank Gaussian" if self.full else f"Gaussians in {self.num_factors:,} blocks"
        kinds = dict.fromkeys(type(piece).__name__ for piece in self.pieces)
        return f"{self.num_factors:,} factors ({', '.join(kinds)})"

    @property
    def num_factors(self) -> int:
        return sum(piece.count for piece in self.pieces)

    def init(self, location: Float[Array, " dim"], scale: Float[Array, " dim"]) -> Params:
        """Parameters around a point of the flat vector."""
        starts = [(piece, location[s], scale[s]) for piece, s in self._slices()]
        return self._whole([piece.init(centre, width) for piece, centre, width in starts])

    def draw(
        self, key: PRNGKeyArray, params: Params, num_samples: int, antithetic: bool = False
    ) -> Float[Array, "draws dim"]:
        keys = jax.random.split(key, len(self.pieces))
        draws = [
            piece.draw(piece_key, part, num_samples, antithetic)
            for piece_key, (piece, part) in zip(keys, self._parts(params), strict=True)
        ]
        return _joined(draws, axis=1)

    def draw_signs(
        self, key: PRNGKeyArray, params: Params, num_samples: int, apart: int = 0
    ) -> Float[Array, "draws dim"]:
        """Mirrored draws of a Gaussian approximation, made of noise that is +1 or -1: its second moments are those of
        q, and its squares do not vary. With ``apart``, every second pair has the noise of the one before it with the
        signs turned that are not among the first ``apart`` ones: sums and differences of the two tell what either part
        of the noise does."""
        dtype = jnp.result_type(*jax.tree.leaves(params))
        if apart:
            one = jax.random.rademacher(key, (num_samples // 4, self.dim), dtype)
            half = jnp.stack([one, jnp.where(jnp.arange(self.dim) < apart, one, -one)], axis=1).reshape(-1, self.dim)
        else:
            half = jax.random.rademacher(key, (num_samples // 2, self.dim), dtype)
        noise = jnp.concatenate([half, -half])
        return _joined(
            [jax.vmap(piece.transform, (None, 0))(part, noise[:, s]) for piece, part, s in self._covered(params)],  # type: ignore[attr-defined]
            axis=1,
        )

    def log_density(self, params: Params, z: Float[Array, " dim"]) -> Float[Array, " factors"]:
        """log q_s(z_s; params), factor by factor."""
        return _joined([piece.log_density(part, z[s]) for piece, part, s in self._covered(params)])

    def base_log_density(self, params: Params, z: Float[Array, " dim"]) -> Float[Array, " factors"]:
        """log phi(f^{-1}(z, params)), factor by factor."""
        return _joined([piece.base_log_density(part, z[s]) for piece, part, s in self._covered(params)])

    def path(self, params: Params, z: Float[Array, " dim"]) -> Float[Array, " dim"]:
        """``z``, carrying the implicit reparameterization derivative."""
        return _joined([piece.path(part, z[s]) for piece, part, s in self._covered(params)])

    def entropy(self, params: Params) -> Float[Array, " factors"]:
        return _joined([piece.entropy(part) for piece, part in self._parts(params)])

    def natural(self, params: Params, gradient: Params) -> Params:
        """The natural gradient F^{-1} g, with F the Fisher information of q in its parameters."""
        pairs = zip(self._parts(params), self._parts(gradient), strict=True)
        return self._whole([piece.natural(part, ascent) for (piece, part), (_, ascent) in pairs])

    def squared_length(self, params: Params, step: Params) -> Float[Array, " factors"]:
        """d' F d of every factor's part d of a step: to second order, twice the KL between before and after."""
        pairs = zip(self._parts(params), self._parts(step), strict=True)
        return _joined([piece.squared_length(part, move) for (piece, part), (_, move) in pairs])

    def scale_by_factor(self, scales: Float[Array, " factors"], step: Params) -> Params:
        """The step, with every factor's part of it multiplied by its own number."""
        ends = np.cumsum([piece.count for piece in self.pieces])[:-1]
        pairs = zip(self._parts(step), jnp.split(scales, ends), strict=True)
        return self._whole([piece.scale_by_factor(own, move) for (piece, move), own in pairs])

    def spread(self, factorwise: Float[Array, "... factors"]) -> Float[Array, "... dim"]:
        """Repeat a value per factor over the entries of z that belong to the factor."""
        if self.num_factors == self.dim:
            return factorwise
        factor_of = np.repeat(np.arange(self.num_factors), np.concatenate([[p.size] * p.count for p in self.pieces]))
        return factorwise[..., factor_of]

    @property
    def gaussian(self) -> bool:
        return all(piece.gaussian for piece in self.pieces)

    @property
    def warped(self) -> bool:
        """Whether it is a Gaussian that may be bent."""
        return all(isinstance(piece, WarpedGaussian) for piece in self.pieces)

    @property
    def nested(self) -> bool:
        """Whether it is a Gaussian given latents that drive it."""
        return all(isinstance(piece, NestedGaussian) for piece in self.pieces)

    @property
    def numbers_per_draw(self) -> int:
        """How many numbers the density of one draw takes, about."""
        return max(self.dim, *(piece.numbers_per_draw for piece in self.pieces if isinstance(piece, NestedGaussian)), 1)

    @property
    def knows_fisher(self) -> bool:
        """Whether natural gradients are known for all of it."""
        return all(type(piece).natural is not Factors.natural for piece in self.pieces)

    @property
    def diagonal(self) -> bool:
        """Whether it is the mean-field Gaussian."""
        return self.gaussian and self.num_factors == self.dim

    @property
    def low_rank(self) -> bool:
        """Whether some of it is a diagonal plus a few directions."""
        return any(isinstance(piece, LowRankGaussian) for piece in self.pieces)

    @property
    def full(self) -> bool:
        """Whether it has every covariance."""
        return self.gaussian and self.num_factors == 1 and not self.low_rank

    def location(self, params: Params) -> Float[Array, " dim"]:
        """The mean of a Gaussian approximation."""
        return _joined([piece.location(part) for piece, part in self._parts(params)])

    def scale(self, params: Params) -> Float[Array, " dim"]:
        """The standard deviations of a Gaussian approximation."""
        return _joined([piece.scale(part) for piece, part in self._parts(params)])

    def in_noise(self, params: Params, z: Float[Array, " dim"], gradient: Float[Array, " dim"]) -> Float[Array, " dim"]:
        """A gradient in z as one along q's own axes: L' g for a Gaussian z = loc + L eps, or one that is bent."""

        def one(piece: Factors, part: Params, entries: slice) -> Array:
            assert isinstance(piece, LocationScale)
            return piece.along_axes(part, z[entries], gradient[entries])

        return _joined([one(*covered) for covered in self._covered(params)])

    def match(self, location: Float[Array, " dim"], precision: Precision) -> Params:
        """The Gaussian approximation closest to one with this mean and precision."""
        return self._whole(
            [
                piece.match(location[s], precision[s] if precision.ndim == 1 else precision[s, s])
                for piece, s in self._slices()
            ]
        )

    def by_piece(self, member: Callable[[Factors, slice], Params]) -> Params:
        """Parameters from those of every piece, which covers these entries."""
        return self._whole([member(piece, entries) for piece, entries in self._slices()])

    def factor(self, params: Params) -> Float[Array, "dim dim"]:
        """L of z = location + L eps, for a Gaussian approximation."""
        return jax.scipy.linalg.block_diag(*(piece.factor(part) for piece, part in self._parts(params)))

    def with_factor(self, location: Float[Array, " dim"], factor: Float[Array, "dim dim"]) -> Params:
        """The Gaussian approximation with this location and, in the entries that it has, this L."""
        return self._whole([piece.with_factor(location[s], factor[s, s]) for piece, s in self._slices()])

    @property
    def blocks(self) -> Bool[Array, "dim dim"]:
        """Which pairs of entries may correlate."""
        factor_of = self.spread(jnp.arange(self.num_factors, dtype=float))
        return factor_of[:, None] == factor_of[None, :]

    @property
    def full_rank(self) -> "Approximation":
        """One Gaussian with a full covariance over the same flat vector."""
        return Approximation(self.coordinates, cover([self.dim]))

    @property
    def independent(self) -> "Approximation":
        """Independent Gaussians over the same flat vector."""
        return Approximation(self.coordinates, (DiagonalGaussian(self.dim),))

    @property
    def symmetric(self) -> bool:
        return all(piece.symmetric for piece in self.pieces)

    def _whole(self, parts: list[Params]) -> Params:
        return tuple(parts) if len(parts) > 1 else parts[0]

    def _slices(self) -> list[tuple[Factors, slice]]:
        ends = list(accumulate(piece.dim for piece in self.pieces))
        return [(piece, slice(end - piece.dim, end)) for piece, end in zip(self.pieces, ends, strict=True)]

    def _parts(self, params: Params) -> list[tuple[Factors, Params]]:
        return list(zip(self.pieces, params if len(self.pieces) > 1 else (params,), strict=True))

    def _covered(self, params: Params) -> list[tuple[Factors, Params, slice]]:
        pairs = zip(self._parts(params), self._slices(), strict=True)
        return [(piece, part, entries) for (piece, part), (_, entries) in pairs]


def _joined(arrays: list[Array], axis: int = 0) -> Array:
    return arrays[0] if len(arrays) == 1 else jnp.concatenate(arrays, axis=axis)


def approximate(family: Family | Mapping[str, Family], latents: Mapping[str, Latent]) -> Approximation:
    """Bind a family, or a family per latent, to a model's latents.

    Latents that a mapping does not name get ``MeanField()``.
    """
    if isinstance(family, Mapping):
        unknown = sorted(set(family) - set(latents))
        require(
            not unknown,
            ConfigurationError,
            f"family names {unknown}, which the model does not have; its latents are {sorted(latents)}.",
        )
        chosen: Mapping[str, Family] = {name: family.get(name, MeanField()) for name in latents}
    else:
        chosen = dict.fromkeys(latents, family)
    for name, one in chosen.items():
        # A class has a plan too, which needs an instance.
        require(
            hasattr(one, "plan") and not isinstance(one, type),
            ConfigurationError,
            "family must be a family such as MeanField(), or a mapping of latents to families; got "
            + (f"{one!r} for latent {name!r}." if isinstance(family, Mapping) else f"{one!r}."),
        )
    distinct = [one for i, one in enumerate(chosen.values()) if one not in list(chosen.values())[:i]]
    plans = [one.plan({name: latents[name] for name in latents if chosen[name] == one}) for one in distinct]
    coordinates = lay_out(
        latents,
        order=[name for plan in plans for name in plan.order],
        constrained=frozenset(name for plan in plans if plan.constrained for name in plan.order),
    )
    return Approximation(coordinates, tuple(piece for plan in plans for piece in plan.factors))
