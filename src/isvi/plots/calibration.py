"""Places of simulated truths among a fit's draws."""

from typing import TYPE_CHECKING

from isvi.plots.style import COLOURS, excess, light_grid, new_axes, uniform_band

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from isvi.calibration import Calibration


def plot_calibration(calibration: "Calibration", axes: "Axes | None" = None) -> "Axes":
    """The distribution function of the places less that of the uniform, one line per entry. At every point a calibrated
    procedure is in the grey band with 95%; entries that are off by more than chance have the other colour."""
    axes = new_axes(axes)
    share = uniform_band(axes, len(calibration.places))
    for column, off in zip(calibration.places.T, calibration.off, strict=True):
        axes.plot(
            share,
            excess(column, share),
            color=COLOURS[1] if off else COLOURS[0],
            linewidth=1.4 if off else 0.8,
            alpha=0.7,
        )
    axes.set_xlabel("place of the truth among the draws")
    axes.set_ylabel("share below, less the uniform")
    light_grid(axes)
    return axes
