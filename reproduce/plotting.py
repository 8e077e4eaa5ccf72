"""One look for all figures: column widths, Okabe and Ito's colours, PNG and SVG."""

from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

mpl.use("Agg")

COLUMN = 3.3
"""Inches: one column of a two-column paper."""
PAGE = 6.8

BLUE, RED, GREEN, PINK, ORANGE, SKY, BLACK = (
    "#0072B2",
    "#D55E00",
    "#009E73",
    "#CC79A7",
    "#E69F00",
    "#56B4E9",
    "#000000",
)
STYLE = {
    "axes.linewidth": 0.6,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": 8,
    "axes.labelsize": 7.5,
    "font.size": 7.5,
    "legend.fontsize": 6.5,
    "legend.frameon": False,
    "lines.linewidth": 1.2,
    "svg.fonttype": "none",
    "svg.hashsalt": "isvi",
    "xtick.labelsize": 6.5,
    "xtick.major.width": 0.6,
    "ytick.labelsize": 6.5,
    "ytick.major.width": 0.6,
}


def panels(rows: int = 1, columns: int = 1, width: float = COLUMN, height: float = 2.3, **options: object) -> tuple:
    """A figure and its axes, always as an array of rows and columns."""
    mpl.rcParams.update(STYLE)
    return plt.subplots(rows, columns, figsize=(width, height), layout="constrained", squeeze=False, **options)


def letter(axes: Axes, text: str) -> None:
    axes.set_title(text, loc="left")


def save(figure: Figure, out: Path, name: str) -> None:
    out.mkdir(parents=True, exist_ok=True)
    figure.savefig(out / f"{name}.png", dpi=200)
    figure.savefig(out / f"{name}.svg", metadata={"Date": None})
    plt.close(figure)
