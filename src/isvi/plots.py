"""Figures. Needs matplotlib: the extra ``isvi[plots]``."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from isvi.core.errors import ConfigurationError
from isvi.results.history import History

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Okabe and Ito's colours, which people with any colour vision can tell apart.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")


def plot_elbo(histories: Mapping[str, History], axes: "Axes | None" = None) -> "Axes":
    """ELBO estimates against model gradients evaluated, one line per history.

    The vertical axis leaves the first steps out, which are usually orders of magnitude below the rest.
    """
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        raise ConfigurationError("Plots need matplotlib, which is not installed: pip install 'isvi[plots]'.") from None
    if axes is None:
        _, axes = plt.subplots(figsize=(5.0, 3.2), layout="constrained")
    lowest, highest = np.inf, -np.inf
    for colour, (name, history) in zip(COLOURS, histories.items(), strict=False):
        rows = history.as_arrays()
        mean, error = rows["elbo"], rows["elbo_standard_error"]
        axes.plot(rows["gradients"], mean, color=colour, label=name, linewidth=1.2)
        axes.fill_between(rows["gradients"], mean - 2 * error, mean + 2 * error, color=colour, alpha=0.2, linewidth=0)
        lowest = min(lowest, np.quantile(mean, 0.1))
        highest = max(highest, mean.max())
    margin = 0.1 * (highest - lowest) + 1e-9
    axes.set_ylim(lowest - margin, highest + margin)
    axes.set_xlabel("model gradients evaluated")
    axes.set_ylabel("ELBO (nats)")
    axes.grid(alpha=0.3, linewidth=0.5)
    if len(histories) > 1:
        axes.legend(frameon=False)
    return axes
