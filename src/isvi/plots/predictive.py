"""Simulated data against the observed: does the model make data like these?"""

from typing import TYPE_CHECKING

import numpy as np

from isvi.core.errors import ConfigurationError, require
from isvi.plots.style import COLOURS, light_grid, new_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from isvi.results.fit import Fit

BINS, FEW_VALUES = 40, 30
"""Up to so many different values each has a bin of its own, as counts and categories should."""


def plot_predictive(
    fit: "Fit", name: str | None = None, num_samples: int = 100, seed: int = 0, axes: "Axes | None" = None
) -> "Axes":
    """The observed values of a column, and what as many simulated ones look like: the median and 90% of the share in
    every bin, over data sets simulated from the posterior.

    Args:
        fit: of a model that can simulate, with its data in memory.
        name: the column; by default the first that the model simulates and the data have.
        num_samples: simulated data sets.
        seed: of the draws.
        axes: to draw on; by default new ones.
    """
    tree = fit.to_datatree(num_samples, seed, posterior_predictive=True)
    known = [str(one) for one in (tree["observed_data"].data_vars if "observed_data" in tree.children else ())]
    shown = known[0] if name is None and known else str(name)
    require(
        shown in known,
        ConfigurationError,
        f"there is no column {name!r} that is both observed and simulated; there are {known}.",
    )
    observed = np.asarray(tree["observed_data"][shown], float).ravel()
    simulated = np.asarray(tree["posterior_predictive"][shown], float).reshape(num_samples, -1)
    edges = _edges(observed, simulated)
    shares = np.stack([np.histogram(one, edges)[0] / len(one) for one in simulated])
    low, middle, high = np.quantile(shares, [0.05, 0.5, 0.95], axis=0)
    axes = new_axes(axes)
    seen = np.histogram(observed, edges)[0] / len(observed)
    axes.stairs(seen, edges, color=COLOURS[1], linewidth=1.4, label="observed")
    axes.stairs(high, edges, baseline=low, fill=True, color=COLOURS[0], alpha=0.3, label="simulated, 90%")
    axes.stairs(middle, edges, color=COLOURS[0], linewidth=1.0)
    axes.set_xlabel(shown)
    axes.set_ylabel("share of the rows")
    axes.legend(frameon=False, fontsize=8)
    light_grid(axes)
    return axes


def _edges(observed: np.ndarray, simulated: np.ndarray) -> np.ndarray:
    values = np.unique(np.concatenate([observed, simulated[:5].ravel()]))
    if len(values) <= FEW_VALUES and np.all(values == np.round(values)):
        return np.arange(values[0], values[-1] + 2) - 0.5
    low, high = np.quantile(np.concatenate([observed, simulated.ravel()]), [0.001, 0.999])
    return np.linspace(min(low, observed.min()), max(high, observed.max()) + 1e-12, BINS + 1)
