"""Figures. Needs the extra ``isvi[plots]``: matplotlib, and arviz-plots for those that it has."""

from isvi.plots.elbo import plot_elbo
from isvi.plots.forest import plot_forest
from isvi.plots.marginals import plot_marginals
from isvi.plots.through_arviz import plot_pairs, plot_predictive
from isvi.plots.weights import plot_weights

__all__ = ["plot_elbo", "plot_forest", "plot_marginals", "plot_pairs", "plot_predictive", "plot_weights"]
