"""Plots that arviz-plots has: the fit is handed to it as a DataTree."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from isvi.core.extras import import_extra

if TYPE_CHECKING:
    from arviz_plots import PlotCollection

    from isvi.results.fit import Fit

DRAWS, PREDICTED = 1000, 100


def plot_pairs(fit: "Fit", names: Sequence[str] | None = None, seed: int = 0, **options: Any) -> "PlotCollection":
    """Latents against each other, two by two, by ``arviz_plots.plot_pair``, which takes the options."""
    return _arviz_plots().plot_pair(fit.to_datatree(DRAWS, seed), var_names=names, backend="matplotlib", **options)


def plot_predictive(fit: "Fit", num_samples: int = PREDICTED, seed: int = 0, **options: Any) -> "PlotCollection":
    """Simulated data against the observed, by ``arviz_plots.plot_ppc_dist``. For models that can simulate."""
    tree = fit.to_datatree(num_samples, seed, posterior_predictive=True)
    return _arviz_plots().plot_ppc_dist(tree, backend="matplotlib", **options)


def _arviz_plots() -> Any:
    return import_extra("arviz_plots", "plots", "This plot")
