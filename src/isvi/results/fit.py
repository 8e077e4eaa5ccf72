"""The result of a fit."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from isvi.core.errors import ConfigurationError, require
from isvi.core.settings import own_settings
from isvi.core.text import shown
from isvi.data.opening import Data
from isvi.families.approximation import Approximation
from isvi.families.base import Params
from isvi.model.local import Marginal
from isvi.model.model import Model
from isvi.results.attempts import Attempt
from isvi.results.density import log_prob
from isvi.results.history import History
from isvi.results.local import Local, local, predict_local
from isvi.results.moments import Marginals, marginals
from isvi.results.remembered import Remembered
from isvi.results.status import Status
from isvi.results.summary import Summary, caption, summarize
from isvi.results.weights.evaluation import ElboEstimate, Evaluation, default_draws, evaluate
from isvi.results.weights.exploration import Candidates, explore
from isvi.results.weights.importance import Importance, importance
from isvi.results.weights.smoothing import FEWEST_FOR_A_TAIL
from isvi.results.weights.standard import standard

if TYPE_CHECKING:
    from arviz_stats.utils import ELPDData
    from matplotlib.axes import Axes
    from xarray import DataTree

    from isvi.diagnosis import Diagnosis

log = logging.getLogger("isvi")


@dataclass(frozen=True)
class Fit:
    """An approximation of the posterior, and how it came about.

    Attributes:
        model: the model that was fitted.
        approximation: the family, bound to the model's latents.
        dataset: the data, as mini-batches; None for a fit that was loaded without them.
        params: the variational parameters.
        history: what happened, in rows.
        status: why the fit ended.
        gradients: model gradients evaluated: of one mini-batch, at one draw.
        steps: steps taken, with fresh and with reused records.
        skipped: steps not taken because the model, or the update, was not finite.
        seconds: seconds spent in steps, without compilation.
        compile_seconds: seconds spent compiling.
        starts: where each start led to, if there were several.
        saved_draws: what the posterior shows, of a fit that was loaded and whose model is needed to tell.
        settings: the choices of the run, by the user or the library, as text and numbers.
    """

    model: Model
    approximation: Approximation
    dataset: Data | None
    params: Params
    history: History
    status: Status
    gradients: int
    steps: int
    skipped: int = 0
    seconds: float = 0.0
    compile_seconds: float = 0.0
    starts: tuple[Attempt, ...] = ()
    saved_draws: Mapping[str, np.ndarray] | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)

    def sample(self, num_samples: int = 1000, seed: int = 0) -> dict[str, np.ndarray]:
        """Draws from the approximation, by latent, in constrained space, with a leading axis."""
        return self._constrained(self._draw(num_samples, seed, antithetic=False))

    def predict(
        self,
        data: Any = None,
        num_samples: int = 1000,
        seed: int = 0,
        *,
        infer_discrete: bool = False,
        to: str | Path | None = None,
        draws: bool = False,
        progress: bool | None = None,
    ) -> Any:
        """Posterior predictive draws for new rows, or for the rows that were fitted, by name, with a leading axis.

        For models with ``simulate`` or ``predict``, and of front ends that can simulate: NumPyro, PyMC, and Stan by its
        generated quantities. Of local latents, every row gets those of its own group.

        Args:
            data: new rows; with ``to`` also a source such as :class:`isvi.data.Parquet`.
            num_samples: draws of the latents.
            seed: of everything random.
            infer_discrete: draws of a NumPyro model's discrete latents instead, which were summed out: from their
                posterior given the rows, with their observations.
            to: a folder for a Zarr group (``isvi[zarr]``), which is returned: means, sds and quantiles of every
                simulated column, for any number of rows in bounded memory. Called again, it goes on where it was.
            draws: with ``to``, all draws along a last axis instead.
            progress: with ``to``, as for :func:`isvi.fit`.
        """
        if to is not None:
            from isvi.exchange.streaming import predict_to

            return predict_to(self, data, Path(to), num_samples, seed, draws, progress)
        if isinstance(self.model.log_likelihood, Marginal) and self.model.predict is not None:
            return predict_local(self, data, num_samples, seed)
        latents = self._latents(self._draw(num_samples, seed, antithetic=False))
        if infer_discrete:
            if self.model.infer_discrete is None:
                raise ConfigurationError("infer_discrete is for NumPyro models with discrete latents; this has none.")
            return dict(self.model.infer_discrete(latents, data, seed))
        return self._predicted(latents, data, seed)

    def local(
        self,
        groups: Sequence[Any] | None = None,
        data: Any = None,
        *,
        new: int | None = None,
        num_samples: int = 1000,
        seed: int = 0,
    ) -> Local:
        """The posterior of latents that belong to one group or one row each: draws, means and sds (docs/local.md).

        Args:
            groups: labels of groups; None for all.
            data: rows of groups, from ``isvi.data.grouped``, or rows with latents of their own; None for those of the
                fit.
            new: instead, so many groups of which there are no data, from their prior.
            num_samples: draws of the global latents, with one of every group's given each.
            seed: of the draws; those of the global latents are ``fit.sample(num_samples, seed)``.
        """
        return local(self, groups, data, new, num_samples, seed)

    def draw_latents(self, num_samples: int, seed: int) -> dict[str, jax.Array]:
        """Draws of the model's own latents, before anything is computed from them for a report."""
        return self.approximation.coordinates.constrain(self._draw(num_samples, seed, antithetic=False))

    def mean(self) -> dict[str, np.ndarray]:
        """Posterior means in constrained space."""
        return {name: one.mean for name, one in self._marginals.items()}

    def sd(self) -> dict[str, np.ndarray]:
        """Posterior standard deviations in constrained space."""
        return {name: one.sd for name, one in self._marginals.items()}

    def summary(self, limit: int = 20) -> Summary:
        """A table; prints at most ``limit`` rows."""
        return summarize(self._marginals, caption(self), limit)

    @own_settings()
    def log_prob(self, values: Mapping[str, Any]) -> np.ndarray:
        """Log density of the approximation at constrained values with a common leading axis; -inf outside the
        latents' supports."""
        return log_prob(self.approximation, self.params, self.model.latents, values)

    def elbo(self, num_samples: int = 100, seed: int = 0) -> ElboEstimate:
        """The ELBO over all rows, in float64: ``num_samples`` passes over the data's likelihood.

        The entropy is exact; the standard error is that of the mean log joint over the draws.
        """
        return self._evaluated(num_samples, seed).elbo

    @own_settings()
    def diagnose(self, num_samples: int | None = None, seed: int = 0) -> "Diagnosis":
        """Did it work? A verdict in words, with the numbers behind it; see ``docs/diagnosis.md``.

        Args:
            num_samples: draws at which the log joint of all rows is evaluated, one pass over the data each: q's, and
                others from around it. By default 2,000 for up to 50,000 rows, then fewer, and 100 from a million rows
                on; Gaussian families take 16 passes more, with gradients.
            seed: of the draws.
        """
        from isvi.diagnosis import diagnose

        weighted = self._weighted(num_samples, seed)
        key = weighted.candidates.passes, seed

        def diagnosed() -> "Diagnosis":
            return diagnose(self, weighted, self._judged(jnp.asarray(weighted.candidates.draws)), seed)

        return self._diagnoses.get(key, diagnosed)

    def resample(self, num_samples: int = 1000, seed: int = 0, candidates: int | None = None) -> dict[str, np.ndarray]:
        """Draws corrected towards the posterior: picked by smoothed importance weights (PSIS), from q's and from others
        around it; or, where the weights cannot be trusted but short chains can, from where these went.

        Some are picked more than once. The candidates are those of :meth:`diagnose` with this seed: after it, this
        costs no further pass over the data. A warning is logged if neither can be trusted.
        """
        require(num_samples >= 1, ConfigurationError, f"num_samples must be at least 1; got {num_samples}.")
        told, weighted = self.diagnose(candidates, seed), self._weighted(candidates, seed)
        if told.motion is not None and told.motion.tells:
            if told.verdict == "poor":
                log.warning("resample: the diagnosis is poor; these draws may not be the posterior's either")
            return self._constrained(jnp.asarray(told.motion.pick(num_samples, seed)))
        if not weighted.trusted:
            log.warning("resample: k-hat is %.2f; these draws are not the posterior's either", weighted.k_hat)
        return self._constrained(jnp.asarray(weighted.resample(num_samples, seed)))

    @property
    def finite(self) -> bool:
        """Whether all parameters of q are finite, and the latents' draws too."""
        shown = [leaf for name, one in self._marginals.items() if name in self.model.latents for leaf in one]
        return all(bool(np.isfinite(np.asarray(leaf)).all()) for leaf in [*jax.tree.leaves(self.params), *shown])

    def data(self) -> Data:
        """The data, as mini-batches; an error for a fit that was loaded without them."""
        if self.dataset is None:
            raise ConfigurationError(
                "This fit was loaded without its model and data, which are needed: isvi.load(path, model, data)."
            )
        return self.dataset

    def to_datatree(
        self,
        num_samples: int = 1000,
        seed: int = 0,
        *,
        sample_stats: bool = False,
        log_likelihood: bool = False,
        posterior_predictive: bool = False,
    ) -> "DataTree":
        """Draws as an ArviZ DataTree with one chain, and the data, if they are in memory.

        Args:
            num_samples, seed: of the draws.
            sample_stats: add log p (``lp``), log q and log importance weights; a pass over the data for every draw.
            log_likelihood: add the log likelihood of every row at every draw.
            posterior_predictive: add simulated data; columns of the same names are then the ``observed_data``.
        """
        from isvi.exchange.tree import to_datatree

        return to_datatree(self, num_samples, seed, sample_stats, log_likelihood, posterior_predictive)

    def loo(self, num_samples: int | None = None, seed: int = 0) -> "ELPDData":
        """Leave-one-out cross-validation: the expected log density of a new row. Needs the extra ``isvi[loo]``.

        The draws are those that :meth:`diagnose` weighs; their weights correct for q not being the posterior. Of very
        many rows a random part is left out, and the rest extrapolated (``subsampling_se``).
        """
        from isvi.exchange.loo import loo

        return loo(self, num_samples, seed)

    def mcmc(self, num_samples: int = 1000, chains: int = 4, warmup: int | None = None, seed: int = 0) -> "DataTree":
        """The posterior itself, by NUTS from here: in the coordinates in which q is standard, from resampled draws.

        Every step evaluates all rows. Beside the posterior, the group ``diagnostics`` has R-hat, effective sample
        sizes, and how far q was off.

        Args:
            num_samples: draws per chain.
            chains: how many, all at once.
            warmup: steps before; by default 100 where the diagnosis is good, else 500, with the covariance adapted.
            seed: of everything random.
        """
        from isvi.exchange.mcmc import mcmc

        return mcmc(self, num_samples, chains, warmup, seed)

    def initial_points(self, number: int = 4, seed: int = 0) -> dict[str, np.ndarray]:
        """Values of the latents to start chains of another sampler at, with a leading axis."""
        from isvi.exchange.standard import initial_points

        return initial_points(self, number, seed)

    def mass_matrix(self) -> np.ndarray:
        """The covariance of q in unconstrained space, which samplers call the inverse mass matrix; beyond 1,000 entries
        its diagonal. In the order of ``fit.approximation.coordinates.labels()``."""
        return standard(self).covariance

    def save(self, path: str | Path) -> None:
        """Write the fit to one file, which :func:`isvi.load` reads: parameters, history and status, and neither the
        model's code nor the data. The format is open (docs/saving.md)."""
        from isvi.results.saving import save

        save(self, Path(path))

    def plot_elbo(self, axes: "Axes | None" = None) -> "Axes":
        """ELBO against model gradients evaluated. Needs the extra ``isvi[plots]``."""
        from isvi.plots import plot_elbo

        return plot_elbo({"isvi": self.history}, axes)

    def report(self, path: str | Path, num_samples: int | None = None, seed: int = 0) -> None:
        """Write one HTML file that needs no other: verdict, advice, numbers, figures, all latents, the model's source,
        settings and versions. Needs the extra ``isvi[plots]``; ``num_samples`` as for :meth:`diagnose`."""
        from isvi.report import write_report

        write_report(self, Path(path), seed, num_samples)

    def __repr__(self) -> str:
        return f"Fit({shown(', '.join(self.model.latents))}; {self.gradients:,} model gradients; {self.status})"

    @cached_property
    def _marginals(self) -> dict[str, Marginals]:
        return marginals(self)

    @cached_property
    def _evaluations(self) -> Remembered[tuple[int, int], Evaluation]:
        return Remembered()

    @own_settings()
    def _evaluated(self, num_samples: int, seed: int) -> Evaluation:
        """Evaluated draws, remembered: diagnosing, resampling and the ELBO use the same ones."""
        return self._evaluations.get((num_samples, seed), lambda: evaluate(self, num_samples, seed))

    @cached_property
    def _diagnoses(self) -> "Remembered[tuple[int, int], Diagnosis]":
        return Remembered()

    @cached_property
    def _explorations(self) -> Remembered[tuple[int, int], Candidates]:
        return Remembered()

    @own_settings()
    def _explored(self, num_samples: int, seed: int) -> Candidates:
        """Evaluated candidates for the posterior's draws, remembered likewise."""
        found = self._explorations.get((num_samples, seed), lambda: explore(self, num_samples, seed))
        self._evaluations.get((found.own, seed), lambda: found.evaluation)
        return found

    def _weighted(self, num_samples: int | None, seed: int) -> Importance:
        draws = default_draws(self) if num_samples is None else num_samples
        require(
            draws >= FEWEST_FOR_A_TAIL,
            ConfigurationError,
            f"A tail can be fitted to the weights of at least {FEWEST_FOR_A_TAIL} draws; got {draws}.",
        )
        return importance(self._explored(draws, seed))

    def _constrained(self, draws: jax.Array) -> dict[str, np.ndarray]:
        values = self._latents(draws)
        return values if self.model.report is None else dict(self.model.report(values))

    def _judged(self, draws: jax.Array) -> dict[str, np.ndarray]:
        """The latents as they are reported: without what is computed from them, such as deterministic sites, and
        without the round-off of entries that are constant."""
        reported, latents = self._constrained(draws), self._latents(draws)
        judged = {}
        for name, latent in self.model.latents.items():
            shown = self.model.shown_as.get(name, name)
            values = np.asarray(reported.get(shown, latents[name]))
            fixed = latent.constants
            same = np.isfinite(fixed).any() and values.shape[1:] == fixed.shape
            judged[shown] = np.where(np.isnan(fixed), values, fixed) if same else values
        return judged

    @own_settings()
    def _latents(self, draws: jax.Array) -> dict[str, np.ndarray]:
        values = jax.device_get(self.approximation.coordinates.constrain(draws))
        return {name: values[name] for name in self.model.latents}

    def _predicted(self, latents: dict[str, np.ndarray], data: Any, seed: int) -> dict[str, np.ndarray]:
        from isvi.exchange.prediction import predict

        return predict(self, latents, data, seed)

    @own_settings()
    def _draw(self, num_samples: int, seed: int, antithetic: bool) -> jax.Array:
        require(num_samples >= 1, ConfigurationError, f"num_samples must be at least 1; got {num_samples}.")
        return self.approximation.draw(jax.random.key(seed), self.params, num_samples, antithetic)
