"""Factors whose draws are noise that is moved and stretched: everything follows from the map and its inverse."""

import abc
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from isvi.families.base import Factors, Params


class LocationScale(Factors):
    """Factors of the form z = f(eps, params) with an explicit f and a base distribution phi."""

    symmetric: ClassVar[bool] = True

    @abc.abstractmethod
    def transform(self, params: Params, noise: Float[Array, " dim"]) -> Float[Array, " dim"]:
        """f(eps, params)."""

    @abc.abstractmethod
    def standardize(self, params: Params, z: Float[Array, " dim"]) -> Float[Array, " dim"]:
        """f^{-1}(z, params)."""

    @abc.abstractmethod
    def log_jacobian(self, params: Params, z: Float[Array, " dim"]) -> Float[Array, " factors"]:
        """log|det df/deps| at eps = f^{-1}(z, params)."""

    def base_draw(self, key: PRNGKeyArray, params: Params, num_samples: int, dtype: Any) -> Array:
        return jax.random.normal(key, (num_samples, self.dim), dtype)

    def base_log_prob(self, params: Params, noise: Float[Array, " dim"]) -> Float[Array, " factors"]:
        per_entry = -0.5 * noise**2 - 0.5 * np.log(2 * np.pi)
        return jnp.sum(per_entry.reshape(self.count, self.size), axis=1)

    def draw(self, key: PRNGKeyArray, params: Params, num_samples: int, antithetic: bool) -> Array:
        dtype = jnp.result_type(*jax.tree.leaves(params))
        if antithetic:
            half = self.base_draw(key, params, num_samples // 2, dtype)
            noise = jnp.concatenate([half, -half])
        else:
            noise = self.base_draw(key, params, num_samples, dtype)
        return jax.vmap(self.transform, (None, 0))(params, noise)

    def log_density(self, params: Params, z: Float[Array, " dim"]) -> Float[Array, " factors"]:
        return self.base_log_density(params, z) - self.log_jacobian(params, z)

    def path(self, params: Params, z: Float[Array, " dim"]) -> Float[Array, " dim"]:
        return self.transform(params, jax.lax.stop_gradient(self.standardize(params, z)))

    def along_axes(self, params: Params, z: Float[Array, " dim"], gradient: Float[Array, " dim"]) -> Array:
        """A gradient in z as one in the noise that z is made of."""
        _, pull = jax.vjp(lambda noise: self.transform(params, noise), self.standardize(params, z))
        return pull(gradient)[0]

    def base_log_density(self, params: Params, z: Float[Array, " dim"]) -> Float[Array, " factors"]:
        return self.base_log_prob(params, self.standardize(params, z))


@dataclass(frozen=True)
class Univariate(LocationScale):
    """``count`` factors of one entry each, z = loc + exp(log_scale) * eps, for parameters with these two names."""

    size: int = 1

    def transform(self, params: Params, noise: Float[Array, " dim"]) -> Float[Array, " dim"]:
        return params.loc + jnp.exp(params.log_scale) * noise

    def standardize(self, params: Params, z: Float[Array, " dim"]) -> Float[Array, " dim"]:
        return (z - params.loc) * jnp.exp(-params.log_scale)

    def log_jacobian(self, params: Params, z: Float[Array, " dim"]) -> Float[Array, " factors"]:
        return params.log_scale
