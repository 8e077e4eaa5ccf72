"""Figures. Needs matplotlib: the extra ``isvi[plots]``. Every function draws on the axes it is given, or on new ones,
and returns them."""

from isvi.plots.elbo import plot_elbo

__all__ = ["plot_elbo"]
