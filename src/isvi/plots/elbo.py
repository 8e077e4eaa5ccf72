"""The ELBO while a fit ran."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from isvi.plots.style import COLOURS, light_grid, new_axes
from isvi.results.history import History

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LINEAR = 1.0
"""Nats about the end that are drawn to scale; beyond, by powers of ten: a fit gains thousands of nats at first and
tenths at last."""


def plot_elbo(histories: Mapping[str, History], axes: "Axes | None" = None) -> "Axes":
    """How far the ELBO is from the best of the ends, against model gradients evaluated, one line per history.

    The lines are ``history.level``: estimates with most of the mini-batches' noise taken off. A fit that did not get
    through its data once has none, and is drawn as its rows are, with two standard errors on either side.
    """
    axes = new_axes(axes)
    drawn = {name: history for name, history in histories.items() if len(history)}
    end = max((_curve(history)[-1] for history in drawn.values()), default=0.0)
    for colour, (name, history) in zip(COLOURS, drawn.items(), strict=False):
        gradients, above = np.asarray(history.gradients), _curve(history) - end
        axes.plot(gradients, above, color=colour, label=name, linewidth=1.4)
        if not history.level:
            error = 2 * np.asarray(history.elbo_standard_error)
            axes.fill_between(gradients, above - error, above + error, color=colour, alpha=0.2, linewidth=0)
    axes.set_yscale("symlog", linthresh=LINEAR, linscale=0.6)
    axes.set_ylim(top=max(axes.get_ylim()[1], LINEAR))
    axes.axhline(0.0, color="grey", linewidth=0.6, zorder=0)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:+,.0f}" if value else "0")
    axes.set_xlim(left=0)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.set_xlabel("model gradients evaluated")
    axes.set_ylabel(f"ELBO, from {end:,.1f} nats")
    light_grid(axes)
    if len(drawn) > 1:
        axes.legend(frameon=False, loc="lower right")
    return axes


def _curve(history: History) -> np.ndarray:
    return np.asarray(history.level or history.elbo, float)
