"""What all figures share."""

from typing import TYPE_CHECKING

import numpy as np

from isvi.core.extras import import_extra

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Okabe and Ito's colours, which people with any colour vision can tell apart.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
SIZE = (5.0, 3.2)
"""Inches: half a page wide."""


def new_axes(axes: "Axes | None", size: tuple[float, float] = SIZE) -> "Axes":
    """The axes given, or those of a new figure."""
    if axes is not None:
        return axes
    pyplot = import_extra("matplotlib.pyplot", "plots", "A plot")
    return pyplot.subplots(figsize=size, layout="constrained")[1]


def uniform_band(axes: "Axes", count: int) -> np.ndarray:
    """Draw where the distribution function of so many uniform values, less the uniform's, is with 95%, at every point;
    returns the points."""
    share = np.linspace(0, 1, 201)
    band = 1.96 * np.sqrt(share * (1 - share) / count)
    axes.fill_between(share, -band, band, color="grey", alpha=0.25, linewidth=0)
    return share


def excess(values: np.ndarray, share: np.ndarray) -> np.ndarray:
    """Their distribution function at these points, less the uniform's."""
    return np.searchsorted(np.sort(values), share, side="right") / len(values) - share


def light_grid(axes: "Axes") -> None:
    axes.grid(alpha=0.3, linewidth=0.5)
