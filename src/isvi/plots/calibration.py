"""Places of simulated truths among a fit's draws."""

from typing import TYPE_CHECKING

import numpy as np

from isvi.plots.style import COLOURS, light_grid, new_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from isvi.calibration import Calibration


def plot_calibration(calibration: "Calibration", axes: "Axes | None" = None) -> "Axes":
    """The distribution function of the places less that of the uniform, one line per entry. At every point a calibrated
    procedure is in the grey band with 95%; entries that are off by more than chance have the other colour."""
    axes = new_axes(axes)
    runs = len(calibration.places)
    share = np.linspace(0, 1, 201)
    for column, off in zip(calibration.places.T, calibration.off, strict=True):
        excess = np.searchsorted(np.sort(column), share, side="right") / runs - share
        axes.plot(share, excess, color=COLOURS[1] if off else COLOURS[0], linewidth=1.4 if off else 0.8, alpha=0.7)
    band = 1.96 * np.sqrt(share * (1 - share) / runs)
    axes.fill_between(share, -band, band, color="grey", alpha=0.25, linewidth=0)
    axes.set_xlabel("place of the truth among the draws")
    axes.set_ylabel("share below, less the uniform")
    light_grid(axes)
    return axes
