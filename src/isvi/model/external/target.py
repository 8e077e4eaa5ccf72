"""The log joint of an external model: the callable on the host, and what JAX knows around it."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpyro.distributions.transforms import IdentityTransform

from isvi.core.settings import users_settings
from isvi.data.dataset import Batch, Dataset
from isvi.data.opening import Data
from isvi.model.external.callback import called_back
from isvi.model.external.model import ExternalModel, no_log_prior
from isvi.model.external.rows import all_host_rows, host_rows
from isvi.model.target import Target


@dataclass(frozen=True)
class ExternalTarget(Target):
    """The log joint of an external model.

    Called with numbers, its methods evaluate the callable on the host, and everything around it in double
    precision. Called while JAX traces, they put a callback into the compiled code, which gives the same numbers
    more slowly: the loop (:mod:`isvi.fitting.running.host_loop`) never does that.
    """

    model: ExternalModel

    on_host: ClassVar[bool] = True

    def log_likelihood(self, z: Float[Array, " dim"], rows: Any) -> Float[Array, ""]:
        values, _ = self.coordinates.decode(z)
        return self._called_back(values, rows).astype(z.dtype)

    @cached_property
    def _bare(self) -> bool:
        """Whether JAX has nothing to add: no constraints, and no prior."""
        entries = self.coordinates.entries
        return self.model.log_prior is no_log_prior and all(
            isinstance(entry.latent.transform, IdentityTransform) for entry in entries
        )

    def exact_values(self, draws: Float[Array, "draws dim"], dataset: Dataset) -> Float[Array, " draws"]:
        if _traced(draws):
            known = super().exact_values(draws, dataset)
            # Without data the callable is the whole density, and no rows will bring it in.
            return known if dataset.full is not None else known + jax.vmap(self.log_likelihood, (0, None))(draws, None)
        return self.whole_values(draws, dataset)

    def whole_values(self, draws: Float[Array, "draws dim"], data: Data) -> Float[Array, " draws"]:
        values = self.decode(draws)
        total = np.zeros(len(draws))
        for part in data.parts():
            for rows in all_host_rows(part):
                total += self.model.external(values, rows)[0]
        return self.complete(draws, total, _zeros_like(values), 1.0)[0]

    def values(self, draws: Float[Array, "draws dim"], batch: Batch) -> Float[Array, " draws"]:
        return self.values_and_gradients(draws, batch)[0]

    def values_and_gradients(
        self, draws: Float[Array, "draws dim"], batch: Batch
    ) -> tuple[Float[Array, " draws"], Float[Array, "draws dim"]]:
        if _traced(draws) or _traced(batch.index):
            return super().values_and_gradients(draws, batch)
        rows = host_rows(batch)
        likelihoods, pulls = self.model.external(self.decode(draws), rows)
        return self.complete(draws, likelihoods, pulls, batch.scale)

    def decode(self, draws: Array) -> dict[str, np.ndarray]:
        """Constrained values of the draws, on the host and in double precision, in the model's order."""
        if self._bare:
            z = np.asarray(draws, np.float64)
            values = {e.name: z[:, e.start : e.stop].reshape(-1, *e.shape) for e in self.coordinates.entries}
        else:
            with jax.enable_x64(True):
                values = jax.device_get(self._decoded(draws))
        return {name: values[name] for name in self.model.latents}

    def complete(
        self, draws: Array, likelihoods: np.ndarray, pulls: dict[str, np.ndarray], scale: float
    ) -> tuple[Array, Array]:
        """The log joint and its gradient in z from what the callable said."""
        if self._bare:
            flat = [pulls[entry.name].reshape(len(draws), -1) for entry in self.coordinates.entries]
            gradients = scale * np.concatenate(flat, axis=1)
            with np.errstate(over="ignore"):  # what single precision cannot hold is not finite, which is dealt with
                return jnp.asarray(scale * likelihoods, draws.dtype), jnp.asarray(gradients, draws.dtype)
        with jax.enable_x64(True):
            return self._completed(draws, likelihoods, pulls, scale)

    @cached_property
    def _decoded(self) -> Callable[[Array], dict[str, Array]]:
        return jax.jit(lambda draws: self.coordinates.constrain(draws.astype(jnp.float64)))

    @cached_property
    def _completed(self) -> Callable[..., tuple[Array, Array]]:
        """What JAX knows, added to what the callable said: prior, Jacobians, and the way back through them."""

        def one(z: Array, likelihood: Array, pull: dict[str, Array], scale: Array) -> tuple[Array, Array]:
            def known_and_carried(z: Array) -> tuple[Array, Array]:
                values, log_jacobian = self.coordinates.decode(z)
                with users_settings():
                    prior = self.model.log_prior(values)
                known = prior + log_jacobian
                carried = sum(jnp.sum(pull[name] * value) for name, value in values.items())
                return known + scale * carried, known

            (_, known), gradient = jax.value_and_grad(known_and_carried, has_aux=True)(z)
            return known + scale * likelihood, gradient

        def completed(draws: Array, likelihoods: Array, pulls: dict, scale: Array) -> tuple[Array, Array]:
            values, gradients = jax.vmap(one, (0, 0, 0, None))(draws.astype(jnp.float64), likelihoods, pulls, scale)
            return values.astype(draws.dtype), gradients.astype(draws.dtype)

        return jax.jit(completed)

    @cached_property
    def _called_back(self) -> Callable[[dict[str, Array], Any], Array]:
        """Kept, so that tracing again finds the same function."""
        return called_back(self.model.external)


def _traced(value: Any) -> bool:
    return isinstance(value, jax.core.Tracer)


def _zeros_like(values: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name: np.zeros_like(value) for name, value in values.items()}
