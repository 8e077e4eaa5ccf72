"""Importance weights: how far the draws are from being the posterior's."""

from typing import TYPE_CHECKING

import numpy as np

from isvi.plots.style import COLOURS, light_grid, new_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from isvi.results.fit import Fit


def plot_weights(fit: "Fit", num_samples: int | None = None, seed: int = 0, axes: "Axes | None" = None) -> "Axes":
    """The share of the weight that the heaviest draws hold, against their share of all draws.

    Equal weights are the diagonal. A curve that starts near the top is a few draws that hold everything. The draws are
    those of ``fit.diagnose()``; k-hat is the shape of the weights' tail.
    """
    weighted = fit._weighted(num_samples, seed)
    axes = new_axes(axes)
    held = np.cumsum(np.sort(weighted.weights)[::-1])
    share = np.arange(1, weighted.num_draws + 1) / weighted.num_draws
    axes.plot(100 * share, 100 * held, color=COLOURS[0], linewidth=1.4)
    axes.plot([0, 100], [0, 100], color="grey", linewidth=0.8, linestyle=":")
    axes.set_xlim(0, 100)
    axes.set_ylim(0, 102)
    axes.set_xlabel("% of the draws, the heaviest first")
    axes.set_ylabel("% of the weight")
    trusted = "below" if weighted.trusted else "above"
    axes.set_title(f"k-hat {weighted.k_hat:.2f}, {trusted} the threshold {weighted.threshold:.2f}", fontsize=9)
    light_grid(axes)
    return axes
