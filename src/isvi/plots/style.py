"""What all figures share."""

from typing import TYPE_CHECKING

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


def light_grid(axes: "Axes") -> None:
    axes.grid(alpha=0.3, linewidth=0.5)
