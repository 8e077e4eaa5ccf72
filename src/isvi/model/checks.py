"""Trying a model out before fitting it, so that mistakes are met at the door."""

from collections.abc import Sequence
from functools import cached_property, partial
from math import inf
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from isvi.core.compiling import compiled_once, operations
from isvi.core.errors import ConfigurationError, ModelError, StartError, require
from isvi.data.dataset import Batch, Dataset
from isvi.model.external import ExternalModel, ExternalTarget
from isvi.model.gradient_check import check_gradient, in_double_precision
from isvi.model.model import Model
from isvi.model.rows_check import forget_compiled
from isvi.model.target import Target
from isvi.model.tracing import used_latents

DRAWS = 8
"""At how many draws a model is tried."""


def check_model(model: Model, dataset: Dataset) -> None:
    """Trace both densities: names, shapes, and which latents they use. Evaluates nothing."""
    if isinstance(model, ExternalModel):
        return  # cannot be traced: a Trial evaluates it once
    has_data = dataset.full is not None
    require(
        model.log_likelihood is None or has_data,
        ConfigurationError,
        "The model has a log_likelihood, but no data was given: isvi.fit(model, data).",
    )
    require(
        model.log_likelihood is not None or not has_data,
        ConfigurationError,
        "Data was given, but the model has no log_likelihood to use it: Model(latents, log_prior, log_likelihood).",
    )
    dtype = jnp.result_type(float)
    values = {name: jax.ShapeDtypeStruct(latent.shape, dtype) for name, latent in model.latents.items()}
    used = used_latents("log_prior", model.log_prior, values)
    in_likelihood: set[str] = set()
    if model.log_likelihood is not None:
        rows = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape[1:], a.dtype), dataset.full)
        in_likelihood = used_latents("log_likelihood", model.log_likelihood, values, rows)
    for name, latent in model.latents.items():
        require(
            name in used or (latent.flat_prior and name in in_likelihood),
            ModelError,
            f"log_prior does not use latent {name!r}, so its prior would be flat and improper. Add its prior to "
            "log_prior; if a flat prior is meant, declare the latent with flat_prior=True."
            if name in in_likelihood
            else f"latent {name!r} is used by neither log_prior nor log_likelihood. Use it, or remove it.",
        )


class Trial:
    """A model at a few draws on one mini-batch: whether it is finite there, and what a gradient costs."""

    def __init__(self, target: Target, dataset: Dataset, dim: int) -> None:
        self._target = target
        self._lowered: jax.stages.Lowered | None = None
        if not isinstance(target, ExternalTarget):
            draws = jax.ShapeDtypeStruct((DRAWS, dim), jnp.result_type(float))
            self._lowered = compiled_once(partial(_parts, target)).lower(draws, dataset.batch(0))

    @property
    def operations_per_gradient(self) -> float:
        """Floating-point operations of one model gradient; infinite for a model that JAX does not compile."""
        return inf if self._lowered is None else operations(self._lowered) / DRAWS

    def check(self, draws: jax.Array, dataset: Dataset) -> None:
        """Evaluate the model at draws from the initial approximation; everything must be finite."""
        if isinstance(self._target, ExternalTarget):
            _check_external_start(self._target, dataset, draws)
        else:
            _require_finite(self._target, draws, self.parts(draws, dataset))

    def explained(self, error: StartError, draws: jax.Array, dataset: Dataset) -> StartError:
        """The error of :meth:`check`; with what to do where only single precision is to blame, in which exp(-104) is 0
        and the slope of its square root infinite."""
        single = not isinstance(self._target, ExternalTarget) and draws.dtype == jnp.float32
        if not single or not _finite_in_double_precision(self._target, np.asarray(draws), dataset.batch(0)):
            return error
        return StartError(
            f"{error} In double precision it is finite there: begin your program with "
            "jax.config.update('jax_enable_x64', True)."
        )

    def parts(self, draws: jax.Array, dataset: Dataset, index: int = 0) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """Values and gradients of each density at ``DRAWS`` draws, on one mini-batch; of a model on the host, where an
        evaluation may be dear, those of the log joint at the first draw only."""
        if self._compiled is None:
            return {"log_joint": jax.device_get(self._target.values_and_gradients(draws[:1], dataset.batch(index)))}
        return jax.device_get(self._compiled(draws, dataset.batch(index)))

    def value(self, draws: jax.Array, dataset: Dataset) -> float:
        """The log joint on one mini-batch, averaged over these draws."""
        return float(sum(values.mean() for values, _ in self.parts(draws, dataset).values()))

    @cached_property
    def _compiled(self) -> jax.stages.Compiled | None:
        return None if self._lowered is None else self._lowered.compile()


def _check_external_start(target: ExternalTarget, dataset: Dataset, draws: jax.Array) -> None:
    """Evaluate the callable once, at a draw from the initial approximation; everything must be finite."""
    door = target.model.external.door
    try:
        values, gradients = jax.device_get(target.values_and_gradients(draws[:1], dataset.batch(0)))
    except ModelError:
        raise
    except Exception as error:
        error.add_note(f"(raised by the function given to {door}, called once before fitting)")
        raise
    bad = [target.coordinates.labels()[entry] for entry in np.flatnonzero(~np.isfinite(gradients[0]))]
    require(
        bool(np.isfinite(values).all()) and not bad,
        StartError,
        f"The function given to {door} gave "
        + (f"a gradient that is not finite in {', '.join(bad[:3])}" if bad else f"the log density {values[0]}")
        + " at a draw from the initial approximation. Check it there, or start elsewhere: "
        "isvi.fit(..., initial={...}, initial_scale=...).",
    )
    if target.model.external.check:
        check_gradient(
            in_double_precision(target, dataset.batch(0)), np.asarray(draws), target.coordinates.labels(), door
        )


def _require_finite(target: Target, draws: jax.Array, parts: dict[str, tuple[np.ndarray, np.ndarray]]) -> None:
    for label, (values, gradients) in parts.items():
        if not np.isfinite(values).all():
            draw = int(np.argmin(np.isfinite(values)))
            _refuse_start(target, label, f"is {values[draw]}", draws[draw])
        if not np.isfinite(gradients).all():
            draw, entry = np.argwhere(~np.isfinite(gradients))[0]
            name = target.coordinates.labels()[entry]
            _refuse_start(target, label, f"has gradient {gradients[draw, entry]} in {name}", draws[draw])


def _finite_in_double_precision(target: Target, draws: np.ndarray, batch: Batch) -> bool:
    forget_compiled()
    try:
        with jax.enable_x64(True):
            found = jax.device_get(jax.jit(partial(_parts, target))(jnp.asarray(draws, jnp.float64), batch))
    except (TypeError, ValueError):  # what the model holds is in single precision
        return False
    finally:
        forget_compiled()
    return all(bool(np.isfinite(leaf).all()) for leaf in jax.tree.leaves(found))


def _parts(target: Target, draws: jax.Array, batch: Batch) -> dict[str, tuple[jax.Array, jax.Array]]:
    """Values and gradients of prior and likelihood at each draw."""

    def likelihood(rows: Any, num_rows: int) -> tuple[jax.Array, jax.Array]:
        return jax.vmap(jax.value_and_grad(target.log_likelihood), (0, None))(draws, rows)

    return {
        "log_prior": jax.vmap(jax.value_and_grad(target.log_prior))(draws),
        "log_likelihood": batch.apply(likelihood),
    }


def _refuse_start(target: Target, label: str, what: str, z: jax.Array) -> None:
    values, _ = target.coordinates.decode(z)
    shown = ", ".join(f"{name} = {_short(value)}" for name, value in list(values.items())[:6])
    raise StartError(
        f"{label} {what} at a draw from the initial approximation ({shown}). "
        "Check the density there, or start elsewhere: isvi.fit(..., initial={...}, initial_scale=...)."
    )


def _short(value: Any) -> str:
    flat: Sequence[float] = np.asarray(value).ravel().tolist()
    shown = ", ".join(f"{number:.4g}" for number in flat[:3])
    return shown if np.ndim(value) == 0 else f"[{shown}{', ...' if len(flat) > 3 else ''}]"
