"""Any Python callable that gives a log density and its gradient."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
from jaxtyping import Array

from isvi.core.errors import ConfigurationError, require
from isvi.core.latents import Latent, real
from isvi.model.external import External, ExternalModel, no_log_prior


def from_gradient(
    value_and_grad: Callable[..., tuple[Any, Any]],
    latents: int | Mapping[str, Latent],
    *,
    log_prior: Callable[[Any], Array] | None = None,
    vectorized: bool = False,
    check_gradient: bool = True,
) -> ExternalModel:
    """A model whose log density and gradient come from outside JAX: PyTorch, Fortran, a simulator, a service.

    The callable is called once for every new record and draw, from the host, and never during reuse steps. It
    receives NumPy arrays in double precision and may return anything that :func:`numpy.asarray` takes. What it
    raises comes out of :func:`isvi.fit` as it is; where it returns NaN or infinity, the step is skipped.

    Args:
        value_and_grad: ``value_and_grad(z) -> (log density, gradient)``. If data are passed to :func:`isvi.fit`,
            ``value_and_grad(z, rows)``, the log likelihood of these rows; the library scales it to all rows.
        latents: the length of z, if it is one unconstrained vector (called ``z`` in results); or named latents
            such as ``{"rate": isvi.positive()}``. Then z and the gradient are dicts of *constrained* values,
            and the library adds the Jacobians of the constraints: do not write them.
        log_prior: a log prior in JAX, added to the external density. Needed with data, since it must not be
            scaled; without data it may be part of the callable.
        vectorized: the callable takes all draws of a record in one call: ``(draws, dim)`` in, ``(draws,)`` and
            ``(draws, dim)`` out (in dicts: a leading axis on every entry).
        check_gradient: before fitting, compare the gradient with differences of the log density along a random
            direction, which takes three evaluations; raise an error that says what is wrong with it.

    >>> import isvi
    >>> model = isvi.from_gradient(lambda z: (-0.5 * z @ z, -z), 3)
    """
    require(callable(value_and_grad), ConfigurationError, f"value_and_grad must be callable; got {value_and_grad!r}.")
    outside = partial(External, value_and_grad, vectorized=vectorized, check=check_gradient)
    if isinstance(latents, Mapping):
        return ExternalModel(latents, log_prior or no_log_prior, external=outside(flat=None))
    require(
        isinstance(latents, (int, np.integer)) and not isinstance(latents, bool) and latents >= 1,
        ConfigurationError,
        "from_gradient needs the length of z, at least 1, or a mapping of names to latents such as "
        f"{{'rate': isvi.positive()}}; got {latents!r}.",
    )
    on_vector = no_log_prior if log_prior is None else _of_vector(log_prior)
    return ExternalModel({"z": real(int(latents))}, on_vector, external=outside(flat="z"))


def _of_vector(log_prior: Callable[[Any], Array]) -> Callable[[dict[str, Array]], Array]:
    return lambda values: log_prior(values["z"])
