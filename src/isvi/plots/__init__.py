"""Figures. Needs matplotlib: the extra ``isvi[plots]``. Every function draws on what it is given, or on something new,
and returns it."""

from isvi.plots.calibration import plot_calibration
from isvi.plots.elbo import plot_elbo
from isvi.plots.forest import plot_forest
from isvi.plots.loo_pit import plot_loo_pit
from isvi.plots.marginals import plot_marginals
from isvi.plots.pairs import plot_pairs
from isvi.plots.predictive import plot_predictive
from isvi.plots.weights import plot_weights

__all__ = [
    "plot_calibration",
    "plot_elbo",
    "plot_forest",
    "plot_loo_pit",
    "plot_marginals",
    "plot_pairs",
    "plot_predictive",
    "plot_weights",
]
