"""Places of the observed values among their predictions."""

from typing import TYPE_CHECKING

from isvi.exchange.loo_pit import loo_pit
from isvi.plots.style import COLOURS, excess, light_grid, new_axes, uniform_band

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from isvi.results.fit import Fit


def plot_loo_pit(
    fit: "Fit", name: str | None = None, num_samples: int | None = None, seed: int = 0, axes: "Axes | None" = None
) -> "Axes":
    """The distribution function of LOO-PIT values less that of the uniform. At every point that of a calibrated model
    is in the grey band with 95%: above it on the left and below it on the right, predictions are too narrow.

    Args:
        fit: of a model that can simulate, with its data in memory.
        name: the column; by default the first that the model simulates and the data have.
        num_samples: draws, as for ``fit.diagnose()``.
        seed: of the draws.
        axes: to draw on; by default new ones.
    """
    axes = new_axes(axes)
    places = loo_pit(fit, name, num_samples, seed)
    share = uniform_band(axes, len(places))
    axes.plot(share, excess(places, share), color=COLOURS[0], linewidth=1.4)
    axes.set_xlabel("place of the observed value among its predictions (LOO-PIT)")
    axes.set_ylabel("share below, less the uniform")
    light_grid(axes)
    return axes
