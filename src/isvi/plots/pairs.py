"""Latents against each other, two by two."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from isvi.core.extras import import_extra
from isvi.plots.marginals import bearable, chosen, flat_draws
from isvi.plots.style import COLOURS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from isvi.results.fit import Fit

DRAWS, BINS = 1000, 30


def plot_pairs(
    fit: "Fit", names: Sequence[str] | None = None, most: int = 6, seed: int = 0, figure: "Figure | None" = None
) -> "Figure":
    """Draws of q, entry against entry, with histograms on the diagonal.

    Args:
        fit: any fit.
        names: latents, or single entries such as ``w[3]``; by default the first few.
        most: how many entries are drawn at most.
        seed: of the draws.
        figure: to draw on; by default a new one.
    """
    draws = flat_draws(fit.sample(bearable(fit, DRAWS), seed))
    labels = chosen(draws, names, most)
    count = len(labels)
    if figure is None:
        pyplot = import_extra("matplotlib.pyplot", "plots", "A plot")
        figure = pyplot.figure(figsize=(1.0 + 1.5 * count, 1.0 + 1.5 * count), layout="constrained")
    grid = np.asarray(figure.subplots(count, count, squeeze=False, sharex="col"))
    for line, down in enumerate(labels):
        for column, across in enumerate(labels):
            axes = grid[line, column]
            axes.tick_params(labelsize=7)
            if column > line:
                axes.set_visible(False)
            elif column == line:
                axes.hist(draws[down], BINS, color=COLOURS[0], alpha=0.5)
                axes.set_yticks([])
            else:
                axes.plot(draws[across], draws[down], ".", color=COLOURS[0], markersize=1.5, alpha=0.4)
            if line == count - 1:
                axes.set_xlabel(across, fontsize=8)
            if column == 0 and line > 0:
                axes.set_ylabel(down, fontsize=8)
    return figure
