"""Figures as SVG that stands inside a page, and takes its colours from there."""

import io
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from isvi.plots.elbo import plot_elbo
from isvi.plots.forest import plot_forest
from isvi.plots.marginals import plot_marginals
from isvi.plots.weights import plot_weights

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from isvi.diagnosis import Diagnosis
    from isvi.results.fit import Fit

MARGINALS, FOREST = 6, 25
SVG = re.compile(r"<svg.*</svg>", re.DOTALL)
SIZE = re.compile(r'(<svg[^>]*?) (?:width="[^"]*"|height="[^"]*")')
BLACK = re.compile(r"(stroke|fill): #0{6}")


def as_svg(draw: Callable[["Figure"], Any], title: str, width: float, height: float) -> str:
    """Draw on a figure of a size in inches; its black is the page's colour of text."""
    import matplotlib
    from matplotlib.figure import Figure

    buffer = io.StringIO()
    # Text stays text; ids differ between the figures of a page, and are the same whenever it is written.
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": title, "font.family": "sans-serif"}):
        figure = Figure(figsize=(width, height), layout="constrained")
        draw(figure)
        figure.patch.set_alpha(0.0)
        for axes in figure.axes:
            axes.patch.set_alpha(0.0)
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    found = SVG.search(buffer.getvalue())
    assert found is not None
    plain = SIZE.sub(r"\1", SIZE.sub(r"\1", found[0]))
    return BLACK.sub(r"\1: currentColor", plain).replace("<svg ", f'<svg role="img" aria-label="{title}" ', 1)


def figures(fit: "Fit", told: "Diagnosis | None", seed: int, draws: int | None) -> list[tuple[str, str, str]]:
    """Captions, SVG and a class for the width: what there is to draw."""
    drawn = []
    if len(fit.history):
        curve = as_svg(lambda figure: plot_elbo({"isvi": fit.history}, figure.subplots()), "ELBO", 5.4, 3.3)
        drawn.append(("The ELBO while it ran, with what mini-batches differ by taken off.", curve, ""))
    if told is not None:
        held = as_svg(lambda figure: plot_weights(fit, draws, seed, figure.subplots()), "weights", 5.4, 3.3)
        drawn.append(("How evenly the draws carry the posterior: the diagonal is a perfect q.", held, ""))
        names = [told.entries.names[row] for row in told.entries.worst(MARGINALS)]
        lines = -(-len(names) // 3)
        caption = "The entries that are most off: q, and the posterior as importance resampling has it"
        caption += "." if told.entries.trusted else ", which here cannot be trusted either."
        marginals = as_svg(
            lambda figure: plot_marginals(fit, names, MARGINALS, seed, draws, figure),
            "marginals",
            9.6,
            0.5 + 2.1 * lines,
        )
        drawn.append((caption, marginals, "wide"))
    count = min(FOREST, sum(latent.size for latent in fit.model.latents.values()))
    names = list(fit.model.latents)
    forest = as_svg(
        lambda figure: plot_forest(fit, names, FOREST, seed, figure.subplots()), "latents", 9.6, 0.7 + 0.22 * count
    )
    more = "" if count < FOREST else f" The first {FOREST}; the table below has all."
    drawn.append((f"Medians, 50 and 90% intervals of q.{more}", forest, "wide"))
    return drawn
