"""What a family must be able to do.

A *family* is what the user names (``MeanField()``). Given the latents it is responsible for, it makes a
*plan*: in which order they are laid out, in which space, and which *factors* cover the resulting vector.
Factors hold the mathematics, written for one point z; the approximation adds the batch axes.
"""

import abc
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import jax
from jaxtyping import Array, Float, PRNGKeyArray

from isvi.core.errors import ConfigurationError, require
from isvi.core.latents import Latent

Params = Any
"""A pytree of arrays: the variational parameters, the paper's lambda."""

Precision = Float[Array, " dim"] | Float[Array, "dim dim"]
"""A precision matrix; a vector stands for a diagonal one."""


@dataclass(frozen=True)
class Factors(abc.ABC):
    """Independent factors q_s over a contiguous piece of z, all of one kind and size.

    Attributes:
        count: number of factors S.
        size: entries of z in each factor. Entry i belongs to factor ``i // size``.
    """

    count: int
    size: int

    symmetric: ClassVar[bool] = False
    """Whether draws can come as antithetic pairs."""
    gaussian: ClassVar[bool] = False
    """Whether the factors are Gaussian, so that they have a ``location`` and can be matched to a precision."""

    @property
    def dim(self) -> int:
        return self.count * self.size

    @abc.abstractmethod
    def init(self, location: Float[Array, " dim"], scale: Float[Array, " dim"]) -> Params:
        """Parameters of an approximation around ``location`` with roughly the given standard deviations."""

    @abc.abstractmethod
    def draw(self, key: PRNGKeyArray, params: Params, num_samples: int, antithetic: bool) -> Array:
        """``(num_samples, dim)`` draws; with ``antithetic``, the second half mirrors the first."""

    @abc.abstractmethod
    def log_density(self, params: Params, z: Float[Array, " dim"]) -> Float[Array, " factors"]:
        """log q_s(z_s; params) for every factor."""

    @abc.abstractmethod
    def path(self, params: Params, z: Float[Array, " dim"]) -> Float[Array, " dim"]:
        """Returns ``z`` itself, but as a function of ``params`` that moves as a draw would.

        Its derivative is the implicit reparameterization gradient dz/dparams at a fixed z, with the base
        noise eps = f^{-1}(z, params) held constant.
        """

    @abc.abstractmethod
    def entropy(self, params: Params) -> Float[Array, " factors"]:
        """Entropy of every factor, in closed form."""

    def natural(self, params: Params, gradient: Params) -> Params:
        """The natural gradient F^{-1} g of every factor, with F the Fisher information of q_s in its parameters."""
        raise ConfigurationError(f"Natural gradients are not known for {type(self).__name__}; use optax.adam(...).")

    def squared_length(self, params: Params, step: Params) -> Float[Array, " factors"]:
        """d' F d of every factor's part d of a step: to second order, twice the KL between before and after."""
        raise ConfigurationError(f"The Fisher information of {type(self).__name__} is not known; use max_kl=None.")

    def scale_by_factor(self, scales: Float[Array, " factors"], step: Params) -> Params:
        """The step, with every factor's part of it multiplied by its own number."""
        # The first axis of every parameter runs over the factors, or over their entries, factor after factor.
        return jax.tree.map(
            lambda leaf: (leaf.reshape(self.count, -1) * scales[:, None]).reshape(leaf.shape),
            step,
        )

    def location(self, params: Params) -> Float[Array, " dim"]:
        """The mean (Gaussian factors only)."""
        raise NotImplementedError(f"{type(self).__name__} is not Gaussian")

    def scale(self, params: Params) -> Float[Array, " dim"]:
        """The standard deviation of every entry (Gaussian factors only)."""
        raise NotImplementedError(f"{type(self).__name__} is not Gaussian")

    def match(self, location: Float[Array, " dim"], precision: Precision) -> Params:
        """The member of the family that is closest, in KL(q || p), to a Gaussian p with this mean and precision
        (Gaussian factors only). Its own precision is the same wherever the family has entries: on the diagonal, if no
        more."""
        raise NotImplementedError(f"{type(self).__name__} is not Gaussian")

    def factor(self, params: Params) -> Float[Array, "dim dim"]:
        """L of z = location + L eps, lower triangular (Gaussian factors only)."""
        raise NotImplementedError(f"{type(self).__name__} is not Gaussian")

    def with_factor(self, location: Float[Array, " dim"], factor: Float[Array, "dim dim"]) -> Params:
        """The parameters with this location and this L, of which only the family's own entries are used; the closest
        member, where the family is not made of entries (Gaussian factors only)."""
        raise NotImplementedError(f"{type(self).__name__} is not Gaussian")

    def base_log_density(self, params: Params, z: Float[Array, " dim"]) -> Float[Array, " factors"]:
        """log phi(eps) with eps = f^{-1}(z, params): what the paper's weights are made of."""
        raise ConfigurationError(
            f"weights='paper' needs a family with a base distribution (MeanField, Block, FullRank, LogNormal, "
            f"StudentT); {type(self).__name__} has none. Use weights='exact'."
        )


@dataclass(frozen=True)
class Plan:
    """How a family covers its latents.

    Attributes:
        order: the latents' names, in the order in which they are laid out.
        constrained: whether the approximation is over their constrained values.
        factors: what covers the laid-out vector, piece after piece; pieces need not end where latents do.
    """

    order: tuple[str, ...]
    constrained: bool
    factors: tuple[Factors, ...]


class Family(Protocol):
    """What the user names."""

    def plan(self, latents: Mapping[str, Latent]) -> Plan:
        """Cover these latents, or raise a ConfigurationError that names the one that cannot be covered."""
        ...


def require_support(family: str, supports: str, latents: Mapping[str, Latent], accepted: tuple[type, ...]) -> None:
    """Raise unless every latent's constraint is of an accepted kind."""
    for name, latent in latents.items():
        require(
            isinstance(latent.constraint, accepted),
            ConfigurationError,
            f"{family} is a family for {supports}; latent {name!r} has support {latent.constraint}. "
            "Use MeanField() for it, which works for every support.",
        )
