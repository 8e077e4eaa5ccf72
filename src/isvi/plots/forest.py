"""Many entries side by side: means and intervals."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from isvi.plots.marginals import bearable, chosen, flat_draws
from isvi.plots.style import COLOURS, light_grid, new_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from isvi.results.fit import Fit

DRAWS = 4000


def plot_forest(
    fit: "Fit", names: Sequence[str] | None = None, most: int = 40, seed: int = 0, axes: "Axes | None" = None
) -> "Axes":
    """Medians with 50 and 90% intervals of q, one line per entry.

    Args:
        fit: any fit.
        names: latents, or single entries such as ``w[3]``; by default the first few.
        most: how many entries are drawn at most.
        seed: of the draws.
        axes: to draw on; by default new ones.
    """
    draws = flat_draws(fit.sample(bearable(fit, DRAWS), seed))
    labels = chosen(draws, names, most)
    axes = new_axes(axes, (5.0, 0.6 + 0.2 * len(labels)))
    lines = np.arange(len(labels))[::-1]
    quantiles = np.stack([np.quantile(draws[label], [0.05, 0.25, 0.5, 0.75, 0.95]) for label in labels])
    axes.hlines(lines, quantiles[:, 0], quantiles[:, 4], color=COLOURS[0], linewidth=1.0)
    axes.hlines(lines, quantiles[:, 1], quantiles[:, 3], color=COLOURS[0], linewidth=3.0)
    axes.plot(quantiles[:, 2], lines, "o", color=COLOURS[1], markersize=3.5)
    axes.axvline(0.0, color="grey", linewidth=0.6, zorder=0)
    axes.set_yticks(lines, labels, fontsize=8)
    axes.set_ylim(-0.7, len(labels) - 0.3)
    axes.set_xlabel("median, 50 and 90% of q")
    light_grid(axes)
    return axes
