"""The result of a fit."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from isvi.core.errors import ConfigurationError, require
from isvi.data.opening import Data
from isvi.families.approximation import Approximation
from isvi.families.base import Params
from isvi.fitting.driver import Outcome
from isvi.fitting.history import History
from isvi.fitting.status import Status
from isvi.fitting.summary import Summary, summarize
from isvi.model.binding import make_target
from isvi.model.model import Model

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from xarray import DataTree

DRAWS_FOR_MOMENTS = 10_000


class ElboEstimate(NamedTuple):
    """An ELBO and how sure it is."""

    value: float
    standard_error: float

    def __str__(self) -> str:
        return f"{self.value:,.3f} ± {self.standard_error:.3f}"


@dataclass(frozen=True)
class Fit:
    """An approximation of the posterior, and how it came about.

    Attributes:
        model: the model that was fitted.
        approximation: the family, bound to the model's latents.
        dataset: the data, as mini-batches.
        outcome: the state at the end, with history and status.
    """

    model: Model
    approximation: Approximation
    dataset: Data
    outcome: Outcome

    @property
    def params(self) -> Params:
        """The variational parameters."""
        return self.outcome.loop.state.params

    @property
    def history(self) -> History:
        return self.outcome.history

    @property
    def status(self) -> Status:
        return self.outcome.status

    @property
    def gradients(self) -> int:
        """Model gradients evaluated: of one mini-batch, at one draw."""
        return int(self.outcome.loop.state.gradients)

    @property
    def steps(self) -> int:
        """Steps taken, with fresh and with reused records."""
        return int(self.outcome.loop.state.steps)

    def sample(self, num_samples: int = 1000, seed: int = 0) -> dict[str, np.ndarray]:
        """Draws from the approximation, by latent, in constrained space, with a leading axis."""
        return self._constrained(self._draw(num_samples, seed, antithetic=False))

    def predict(self, data: Any = None, num_samples: int = 1000, seed: int = 0) -> dict[str, np.ndarray]:
        """Posterior predictive draws for new rows, or for the rows that were fitted, with a leading axis.

        For models of front ends that can simulate data: NumPyro, PyMC, and Stan by its generated quantities.
        """
        if self.model.predict is None:
            raise ConfigurationError(
                "This model cannot simulate data: it has densities only. Simulate from fit.sample(), or write the "
                "model in NumPyro and use isvi.from_numpyro."
            )
        return dict(self.model.predict(self._latents(self._draw(num_samples, seed, antithetic=False)), data, seed))

    def mean(self) -> dict[str, np.ndarray]:
        """Posterior means in constrained space."""
        return {name: values.mean(axis=0) for name, values in self._moments_draws.items()}

    def sd(self) -> dict[str, np.ndarray]:
        """Posterior standard deviations in constrained space."""
        return {name: values.std(axis=0, ddof=1) for name, values in self._moments_draws.items()}

    def summary(self, limit: int = 20) -> Summary:
        """A table; prints at most ``limit`` rows."""
        caption = f"{self.gradients:,} model gradients, {self.steps:,} steps; {self.status}"
        return summarize(self._moments_draws, caption, limit)

    def log_prob(self, values: Mapping[str, Any]) -> np.ndarray:
        """Log density of the approximation at constrained values with a common leading axis."""
        coordinates = self.approximation.coordinates
        missing = sorted(set(self.model.latents) - set(values))
        require(not missing, ConfigurationError, f"log_prob needs a value for every latent; missing: {missing}.")

        def one(point: dict[str, jax.Array]) -> jax.Array:
            z = coordinates.encode(point)
            _, log_jacobian = coordinates.decode(z)
            return self.approximation.log_density(self.params, z).sum() - log_jacobian

        arrays = {name: jnp.asarray(values[name], jnp.result_type(float)) for name in self.model.latents}
        return np.asarray(jax.vmap(one)(arrays))

    def elbo(self, num_samples: int = 100, seed: int = 0) -> ElboEstimate:
        """The ELBO over all rows, in float64: ``num_samples`` passes over the data's likelihood.

        The entropy is exact; the standard error is that of the mean log joint over the draws.
        """
        require(num_samples >= 2, ConfigurationError, f"num_samples must be at least 2; got {num_samples}.")
        target = make_target(self.model, self.approximation.coordinates)
        with jax.enable_x64(True):
            params = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float64), self.params)
            draws = self.approximation.draw(jax.random.key(seed), params, num_samples)
            values = np.asarray(target.whole_values(draws, self.dataset))
            entropy = float(self.approximation.entropy(params).sum())
        return ElboEstimate(float(values.mean()) + entropy, float(values.std(ddof=1) / np.sqrt(num_samples)))

    def to_datatree(self, num_samples: int = 1000, seed: int = 0) -> "DataTree":
        """Draws as an ArviZ DataTree with one chain."""
        import arviz_base

        posterior = {name: values[None] for name, values in self.sample(num_samples, seed).items()}
        attributes = {
            "inference_library": "isvi",
            "model_gradients": self.gradients,
            "status": str(self.status),
        }
        groups = {"posterior": posterior, **(self.model.groups or {})}
        known = {name for group in groups.values() for name in group}
        dims = {name: list(axes) for name, axes in (self.model.dims or {}).items() if name in known}
        return arviz_base.from_dict(groups, attrs={"posterior": attributes}, dims=dims, coords=self.model.coords)

    def plot_elbo(self, axes: "Axes | None" = None) -> "Axes":
        """ELBO against model gradients evaluated. Needs the extra ``isvi[plots]``."""
        from isvi.plots import plot_elbo

        return plot_elbo({"isvi": self.history}, axes)

    def __repr__(self) -> str:
        return f"Fit({', '.join(self.model.latents)}; {self.gradients:,} model gradients; {self.status})"

    @cached_property
    def _moments_draws(self) -> dict[str, np.ndarray]:
        # Mirrored draws give the exact mean of every entry that is not transformed.
        return self._constrained(self._draw(DRAWS_FOR_MOMENTS, seed=0, antithetic=self.approximation.symmetric))

    def _constrained(self, draws: jax.Array) -> dict[str, np.ndarray]:
        values = self._latents(draws)
        return values if self.model.report is None else dict(self.model.report(values))

    def _latents(self, draws: jax.Array) -> dict[str, np.ndarray]:
        values = jax.device_get(self.approximation.coordinates.constrain(draws))
        return {name: values[name] for name in self.model.latents}

    def _draw(self, num_samples: int, seed: int, antithetic: bool) -> jax.Array:
        require(num_samples >= 1, ConfigurationError, f"num_samples must be at least 1; got {num_samples}.")
        return self.approximation.draw(jax.random.key(seed), self.params, num_samples, antithetic)
