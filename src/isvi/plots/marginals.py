"""Single entries of the latents: q against the importance-resampled posterior."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from isvi.core.coordinates import entry_labels
from isvi.core.errors import ConfigurationError, require
from isvi.core.extras import import_extra
from isvi.plots.style import COLOURS, light_grid, new_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from isvi.results.fit import Fit

BINS, DRAWS = 30, 4000
PER_LINE = 3
NUMBERS, FEWEST_DRAWS = 10**7, 200
"""Draws times entries that are in memory together: with very many entries there are fewer draws of each."""


def bearable(fit: "Fit", draws: int) -> int:
    """So many draws, or as many as memory bears."""
    return min(draws, max(FEWEST_DRAWS, NUMBERS // fit.approximation.dim))


def flat_draws(draws: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Draws by entry, such as ``w[3]``."""
    return {
        label: column
        for name, values in draws.items()
        for label, column in zip(
            entry_labels(name, values.shape[1:]), np.reshape(values, (len(values), -1)).T, strict=True
        )
    }


def chosen(entries: dict[str, np.ndarray], names: Sequence[str] | None, most: int) -> list[str]:
    """The entries that were named, by latent or one by one; the first few if none were."""
    if names is None:
        return list(entries)[:most]
    picked = [label for name in names for label in entries if label == name or label.startswith(f"{name}[")]
    missing = [name for name in names if not any(one == name or one.startswith(f"{name}[") for one in picked)]
    require(not missing, ConfigurationError, f"there is no latent {missing}; there are {list(entries)[:20]}.")
    return picked[:most]


def plot_marginals(
    fit: "Fit",
    names: Sequence[str] | None = None,
    most: int = 9,
    seed: int = 0,
    candidates: int | None = None,
    figure: "Figure | None" = None,
) -> "Figure":
    """Histograms of q, and of the posterior as importance resampling has it: where the two differ, q is off.

    The candidates are those of ``fit.diagnose()``: after it, no further pass over the data is needed.

    Args:
        fit: with its model and data.
        names: latents, or single entries such as ``w[3]``; by default the first few.
        most: how many entries are drawn at most.
        seed: of the draws.
        candidates: draws to resample from, as ``num_samples`` of ``fit.diagnose()``.
        figure: to draw on; by default a new one.
    """
    draws = bearable(fit, DRAWS)
    own, corrected = flat_draws(fit.sample(draws, seed)), flat_draws(fit.resample(draws, seed, candidates))
    labels = chosen(own, names, most)
    lines, across = -(-len(labels) // PER_LINE), min(PER_LINE, len(labels))
    if figure is None:
        pyplot = import_extra("matplotlib.pyplot", "plots", "A plot")
        figure = pyplot.figure(figsize=(3.0 * across, 2.2 * lines), layout="constrained")
    for place, label in enumerate(labels):
        axes = figure.add_subplot(lines, across, place + 1)
        _draw(axes, own[label], corrected[label])
        axes.set_title(label, fontsize=9)
    handles, told = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, told, frameon=False, ncols=2, fontsize=8, loc="outside lower center")
    return figure


def _draw(axes: "Axes", own: np.ndarray, corrected: np.ndarray) -> None:
    new_axes(axes)
    both = np.concatenate([own, corrected])
    finite = both[np.isfinite(both)]
    low, high = np.quantile(finite, [0.001, 0.999]) if len(finite) else (0.0, 1.0)
    edges = np.linspace(low, high if high > low else low + 1, BINS + 1).tolist()
    axes.hist(own, edges, density=True, color=COLOURS[0], alpha=0.35, label="q")
    axes.hist(corrected, edges, density=True, histtype="step", color=COLOURS[1], linewidth=1.3, label="resampled")
    axes.set_yticks([])
    axes.locator_params(axis="x", nbins=4)
    axes.tick_params(labelsize=8)
    light_grid(axes)
