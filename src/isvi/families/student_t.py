"""Student's t, for real latents whose posterior has heavier tails than a Gaussian."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray
from numpyro import distributions
from numpyro.distributions import constraints

from isvi.core.errors import ConfigurationError, require
from isvi.core.latents import Latent
from isvi.families.base import Plan, require_support
from isvi.families.location_scale import Univariate
from isvi.families.special.simplex import beta_velocity, interior

DF_RANGE = (2.1, 200.0)
"""Where the degrees of freedom may go. At 2 and below the variance is infinite, and with it the ELBO of any
posterior with Gaussian tails. (Up to 4 the gradient for the scale has infinite variance on such a posterior;
that is noise, not bias.) Above 200 a t is a Gaussian to within 2e-5 nats, so its df has nothing left to
gain: without an end, Adam would walk there for ever."""


@jax.custom_jvp
def t_path(df: Float[Array, " dim"], noise: Float[Array, " dim"]) -> Float[Array, " dim"]:
    """``noise``, as it moves with the degrees of freedom at a fixed level of the CDF of the standard t."""
    return noise


@t_path.defjvp
def _t_path_jvp(primals: tuple[Array, Array], tangents: tuple[Array, Array]) -> tuple[Array, Array]:
    """y = df / (df + t^2) ~ Beta(df/2, 1/2) and log t^2 = log df - logit(y), so that
    d log|t| / d df = (1/df - dlogit(y)/da / 2) / 2 with a = df/2."""
    df, noise = primals
    square = noise**2 / df
    y, rest = 1 / (1 + square), 1 / (1 + 1 / square)
    velocity = beta_velocity(interior(y), rest, df / 2, jnp.full_like(df, 0.5))
    return noise, noise * 0.5 * (1 / df - 0.5 * velocity) * tangents[0]


LEAST_INFORMATION = 1e-4
"""A floor for the Fisher information of ``lightness``, which falls below it where df is above 110 or so, and at the
other end of the range."""
LAGUERRE_NODES = 24
KERNEL_SERIES = (
    7 / 12,
    -13 / 24,
    79 / 240,
    -119 / 720,
    727 / 10080,
    -367 / 13440,
    937 / 103680,
    -9763 / 3628800,
    59047 / 79833600,
    -89609 / 479001600,
    531439 / 12454041600,
    -259349 / 29059430400,
    683281 / 373621248000,
)
"""Taylor coefficients of ``_degrees_kernel`` at 0; to 1e-10 below 1/2."""


def degrees_information(df: Float[Array, " dim"]) -> Float[Array, " dim"]:
    """The Fisher information of the degrees of freedom,
    ``(trigamma(df/2) - trigamma((df+1)/2)) / 4 - (df + 5) / (2 df (df + 1) (df + 3))``.

    It falls as 3.5 / df^4 while its terms fall as 1/df, so that nothing is left of the difference in float32. As an
    integral of exp(-df s) k(s) over s > 0, with k(s) / s^3 smooth, it is done by Gauss-Laguerre quadrature.
    """
    nodes, weights = np.polynomial.laguerre.laggauss(LAGUERRE_NODES)
    s = jnp.asarray(nodes, df.dtype) / df[:, None]
    return jnp.sum(jnp.asarray(weights * nodes**3, df.dtype) * _degrees_kernel(s), axis=1) / df**4


def _degrees_kernel(s: Float[Array, "..."]) -> Float[Array, "..."]:
    """k(s) / s^3 for k(s) = s / (1 + exp(-s)) - 5/6 + exp(-s) - exp(-3 s) / 6."""
    small = s < 0.5
    near, far = jnp.where(small, s, 0.5), jnp.where(small, 0.5, s)
    series = jnp.polyval(jnp.asarray(KERNEL_SERIES[::-1], s.dtype), near)
    direct = far * jax.nn.sigmoid(far) - 5 / 6 + jnp.exp(-far) - jnp.exp(-3 * far) / 6
    return jnp.where(small, series, direct / far**3)


class Information(NamedTuple):
    """The Fisher information of a t: its diagonal, and its one entry off it."""

    loc: Float[Array, " dim"]
    log_scale: Float[Array, " dim"]
    both: Float[Array, " dim"]
    """Of log_scale and lightness."""
    lightness: Float[Array, " dim"]


class StudentTParams(NamedTuple):
    """z = loc + exp(log_scale) * t. ``lightness`` of the tails runs over the reals as log df runs over its range;
    it is None, and no parameter, where df is fixed."""

    loc: Float[Array, " dim"]
    log_scale: Float[Array, " dim"]
    lightness: Float[Array, " dim"] | None


@dataclass(frozen=True)
class StudentTFactors(Univariate):
    """``count`` univariate t distributions, with ``df`` fixed or, if None, one to be learned for each."""

    df: float | None = None

    def init(self, location: Array, scale: Array) -> StudentTParams:
        """``scale`` is the standard deviation: exp(log_scale) sqrt(df / (df - 2))."""
        # Half-way: df of about 20.
        params = StudentTParams(location, jnp.log(scale), jnp.zeros_like(location) if self.df is None else None)
        return params._replace(log_scale=params.log_scale + 0.5 * jnp.log1p(-2 / self.degrees(params)))

    def degrees(self, params: StudentTParams) -> Float[Array, " dim"]:
        """The degrees of freedom."""
        if self.df is not None:
            return jnp.full_like(params.loc, self.df)
        assert params.lightness is not None  # it is only where df is fixed
        least, most = map(math.log, DF_RANGE)
        return jnp.exp(least + (most - least) * jax.nn.sigmoid(params.lightness))

    def base_draw(self, key: PRNGKeyArray, params: StudentTParams, num_samples: int, dtype: Any) -> Array:
        return jax.random.t(key, self.degrees(params), (num_samples, self.dim), dtype)

    def base_log_prob(self, params: StudentTParams, noise: Array) -> Array:
        # numpyro's constants are double where doubles are enabled.
        return distributions.StudentT(self.degrees(params)).log_prob(noise).astype(noise.dtype)

    def path(self, params: StudentTParams, z: Array) -> Array:
        noise = jax.lax.stop_gradient(self.standardize(params, z))
        if self.df is None:
            noise = t_path(self.degrees(params), noise)
        return self.transform(params, noise)

    def natural(self, params: StudentTParams, gradient: StudentTParams) -> StudentTParams:
        """F^{-1} g, with the loc orthogonal to the other two. Where the tails are all but Gaussian q hardly depends
        on ``lightness``, and a natural step in it would be without bounds: its information is raised to a floor."""
        information = self._information(params)
        loc = gradient.loc / information.loc
        if gradient.lightness is None:
            return StudentTParams(loc, gradient.log_scale / information.log_scale, None)
        own, both = jnp.maximum(information.lightness, LEAST_INFORMATION), information.both
        determinant = information.log_scale * own - both**2
        return StudentTParams(
            loc,
            (own * gradient.log_scale - both * gradient.lightness) / determinant,
            (information.log_scale * gradient.lightness - both * gradient.log_scale) / determinant,
        )

    def squared_length(self, params: StudentTParams, step: StudentTParams) -> Array:
        information = self._information(params)
        length = information.loc * step.loc**2 + information.log_scale * step.log_scale**2
        if step.lightness is None:
            return length
        own = jnp.maximum(information.lightness, LEAST_INFORMATION)
        return length + own * step.lightness**2 + 2 * information.both * step.log_scale * step.lightness

    def _information(self, params: StudentTParams) -> "Information":
        """Lange, Little & Taylor (1989), appendix B, by the chain rule in these parameters."""
        df = self.degrees(params)
        least, most = map(math.log, DF_RANGE)
        share = jax.nn.sigmoid(jnp.zeros_like(df) if params.lightness is None else params.lightness)
        by_lightness = df * (most - least) * share * (1 - share)
        return Information(
            loc=(df + 1) / (df + 3) * jnp.exp(-2 * params.log_scale),
            log_scale=2 * df / (df + 3),
            both=-2 * by_lightness / ((df + 1) * (df + 3)),
            lightness=degrees_information(df) * by_lightness**2,
        )

    def entropy(self, params: StudentTParams) -> Array:
        return distributions.StudentT(self.degrees(params)).entropy().astype(params.loc.dtype) + params.log_scale


@dataclass(frozen=True)
class StudentT:
    """An independent Student t for every entry of real latents.

    Attributes:
        df: degrees of freedom, above 2. By default every entry learns its own, between 2.1 and 200.
    """

    df: float | None = None

    def __post_init__(self) -> None:
        require(
            self.df is None or self.df > 2,
            ConfigurationError,
            f"StudentT(df=...) must be above 2, where the variance is finite; got {self.df!r}.",
        )

    def plan(self, latents: Mapping[str, Latent]) -> Plan:
        reals = (type(constraints.real), type(constraints.real_vector))
        require_support("StudentT()", "real latents", latents, reals)
        dim = sum(latent.size for latent in latents.values())
        return Plan(tuple(latents), constrained=True, factors=(StudentTFactors(dim, df=self.df),))
