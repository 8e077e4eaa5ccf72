"""Simulation-based calibration: latents from the prior, data from the latents, a fit of the data; again and again.

If the fits are right, the place of the true value among a fit's draws is uniform. Talts, Betancourt, Simpson, Vehtari
and Gelman (2018), Validating Bayesian inference algorithms with simulation-based calibration; for variational inference
Yao, Vehtari, Simpson and Gelman (2018), Yes, but did it work?, ICML.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from isvi.core.coordinates import entry_labels
from isvi.core.errors import ConfigurationError, ModelError, require
from isvi.data.arrays import checked_arrays
from isvi.fitting.fit import fit
from isvi.model.model import Model
from isvi.results.fit import Fit
from isvi.results.status import some

log = logging.getLogger("isvi")

FEWEST_RUNS = 10
FALSE_ALARMS = 0.01
"""How often a procedure that is calibrated is called not calibrated, over all entries together."""


@dataclass(frozen=True)
class Calibration:
    """What simulated truths say about the fits of data made from them.

    Attributes:
        names: entries of the latents, such as ``w[3]``.
        places: ``(runs, entries)``: the share of a fit's draws that are below the truth. Uniform, if all is right.
        p_values: of uniformity, for every entry, by the statistic of Kolmogorov and Smirnov.
        ended_badly: runs whose fit did not end well; they are counted in.
    """

    names: list[str]
    places: Float[np.ndarray, "runs entries"]
    p_values: Float[np.ndarray, " entries"]
    ended_badly: int

    @property
    def off(self) -> np.ndarray:
        """Which entries are not calibrated, with the number of entries taken into account."""
        return self.p_values < FALSE_ALARMS / len(self.names)

    @property
    def calibrated(self) -> bool:
        """Whether nothing speaks against it: with few runs only coarse errors can be seen."""
        return not self.off.any()

    def __str__(self) -> str:
        runs = f"{len(self.places):,} simulated data sets"
        bad = f"; {self.ended_badly} fits did not end well" if self.ended_badly else ""
        if self.calibrated:
            return f"calibrated, as far as {runs} can tell{bad}"
        return f"not calibrated, by {runs}: {some(self.names, self.off)}; {self._how()}{bad}"

    __repr__ = __str__

    def _how(self) -> str:
        """In which way, at the entry that is most off."""
        places = self.places[:, int(np.argmin(self.p_values))]
        shift, spread = places.mean() - 0.5, places.std() * np.sqrt(12)
        if abs(shift) > abs(spread - 1) / 4:
            return f"the fits are too {'low' if shift > 0 else 'high'}"
        return f"the fits are too {'narrow' if spread > 1 else 'wide'}"


def calibrate(
    model: Model,
    data: Any,
    runs: int = 100,
    num_samples: int = 1000,
    seed: int = 0,
    draws: Callable[[Fit, int, int], dict[str, np.ndarray]] | None = None,
    **options: Any,
) -> Calibration:
    """Fit data simulated from the model again and again, and see whether the truth is where the fits say.

    Args:
        model: with ``draw_prior`` and ``simulate``.
        data: rows whose columns are kept but for those that are simulated.
        runs: simulated data sets, and fits.
        num_samples: draws of each fit that the truth is compared with.
        seed: everything random follows from it.
        draws: ``draws(fit, num_samples, seed)``: by default ``isvi.Fit.sample``; ``isvi.Fit.resample`` for the draws
            that are corrected by importance weights.
        **options: those of :func:`isvi.fit`.
    """
    require(
        isinstance(model, Model) and model.simulate is not None and model.draw_prior is not None,
        ConfigurationError,
        "calibrate needs a model that can draw from its prior and simulate data: isvi.Model(..., draw_prior=lambda "
        "key: {...}, simulate=lambda key, z, rows: {...}).",
    )
    require(runs >= FEWEST_RUNS, ConfigurationError, f"runs must be at least {FEWEST_RUNS}; got {runs}.")
    rows, _ = checked_arrays(data)
    require(isinstance(rows, dict), ConfigurationError, "calibrate needs data with named columns: a dict of arrays.")
    taken, places, ended_badly = draws or Fit.sample, [], 0
    for run in range(runs):
        truth, simulated = _simulated(model, rows, jax.random.fold_in(jax.random.key(seed), run))
        found = fit(model, {**rows, **simulated}, seed=seed + run, **{"progress": False, **options})
        ended_badly += not found.status.good
        sampled = taken(found, num_samples, seed + run)
        places.append(np.concatenate([_places(sampled[name], truth[name]) for name in model.latents]))
        log.info("calibrate: %s of %s", run + 1, runs)
    table = np.stack(places)
    names = [label for name, latent in model.latents.items() for label in entry_labels(name, latent.shape)]
    return Calibration(names, table, _p_values(table), ended_badly)


def _simulated(model: Model, rows: dict[str, Any], key: Any) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Latents from the prior, and columns from the latents."""
    assert model.draw_prior is not None
    assert model.simulate is not None
    of_prior, of_data = jax.random.split(key)
    truth = {name: jnp.asarray(value, jnp.result_type(float)) for name, value in model.draw_prior(of_prior).items()}
    shapes = {name: latent.shape for name, latent in model.latents.items()}
    found = {name: value.shape for name, value in truth.items()}
    require(shapes == found, ModelError, f"draw_prior must give every latent, as {shapes}; it gave {found}.")
    simulated = model.simulate(of_data, truth, jax.tree.map(jnp.asarray, rows))
    unknown = sorted(set(simulated) - set(rows))
    require(not unknown, ModelError, f"simulate gives columns that the data do not have: {unknown}.")
    return jax.device_get(truth), jax.device_get(simulated)


def _places(draws: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """Among so many draws, with half a draw on either side, so that it is never 0 or 1."""
    below = (np.asarray(draws) < truth).sum(axis=0)
    return np.ravel((below + 0.5) / (len(draws) + 1))


def _p_values(places: Float[np.ndarray, "runs entries"]) -> Float[np.ndarray, " entries"]:
    from scipy.stats import kstest

    return np.array([kstest(column, "uniform").pvalue for column in places.T])
