"""A correlated Gaussian target, with the ELBO of any Gaussian approximation in closed form."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import isvi
from isvi.families.block import BlockParams

PRECISION = np.array([[2.0, 0.9, -0.6], [0.9, 1.5, 0.5], [-0.6, 0.5, 1.8]])
MODE = np.array([0.5, -0.3, 0.8])
LABELS = ("a[0]", "a[1]", "b")
"""The order in which PRECISION and MODE are written; families may lay latents out in another one."""


def constants() -> tuple[jax.Array, jax.Array]:
    """Mode and precision, in the floating point of the moment: a NumPy constant that JAX has met in single precision it
    may not lower in double precision."""
    return jnp.asarray(MODE), jnp.asarray(PRECISION)


def log_density(values: dict[str, jax.Array]) -> jax.Array:
    """-(v - mode)' precision (v - mode) / 2."""
    mode, precision = constants()
    centred = jnp.append(values["a"], values["b"]) - mode
    return -0.5 * centred @ precision @ centred


def model() -> isvi.Model:
    return isvi.Model({"a": isvi.real(2), "b": isvi.real()}, log_density)


def order(approximation: isvi.Approximation) -> np.ndarray:
    """Where the entries of LABELS sit in the flat vector."""
    return np.array([approximation.coordinates.labels().index(label) for label in LABELS])


def moments(approximation: isvi.Approximation, params: Any) -> tuple[jax.Array, jax.Array]:
    """Mean and covariance of a Gaussian approximation, in the order of LABELS."""
    pieces = params if len(approximation.pieces) > 1 else (params,)
    mean = jnp.concatenate([piece.loc for piece in pieces])
    covariance = jax.scipy.linalg.block_diag(*[block for piece in pieces for block in _covariances(piece)])
    here = order(approximation)
    return mean[here], covariance[jnp.ix_(here, here)]


def _covariances(piece: Any) -> list[jax.Array]:
    if not isinstance(piece, BlockParams):
        return list(jnp.exp(2 * piece.log_scale)[:, None, None])
    lower = [jnp.tril(factor, -1) + jnp.diag(jnp.exp(jnp.diag(factor))) for factor in piece.factor]
    return [one @ one.T for one in lower]


def exact_elbo(approximation: isvi.Approximation, params: Any) -> jax.Array:
    """E_q[log density] + entropy, without a draw."""
    mean, covariance = moments(approximation, params)
    mode, precision = constants()
    centred = mean - mode
    expected = -0.5 * (centred @ precision @ centred + jnp.trace(precision @ covariance))
    entropy = 0.5 * jnp.linalg.slogdet(2 * jnp.pi * jnp.e * covariance)[1]
    return expected + entropy
