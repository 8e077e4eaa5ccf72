"""The README's picture, from ``results/peers.csv``: what 0.01 nat per latent cost, in gradients and in seconds.

python -m benchmarks.headline
"""

import math
from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.axes import Axes

from benchmarks.figure import SHORT_TITLES
from benchmarks.report import DEFAULT, LAPLACE, Cost, Results, collect
from benchmarks.store import Store
from reproduce.plotting import BLACK, BLUE, RED

ROOT = Path(__file__).parents[1]


def draw(out: Path) -> None:
    everything = [one for one in collect(Store(ROOT / "benchmarks" / "results")) if one.best_tuned(one.gradients)]
    size = (9, 1.4 + 0.3 * len(everything))
    figure, (left, right) = plt.subplots(1, 2, figsize=size, sharey=True, layout="constrained")
    _panel(left, everything, "gradients")
    _panel(right, everything, "seconds")
    left.set(xlabel="model gradients to 0.01 nat per latent", yticks=range(len(everything)))
    left.set_yticklabels([SHORT_TITLES[one.letter] for one in everything])
    left.invert_yaxis()
    right.set_xlabel("CPU seconds, without compilation")
    left.margins(y=0.3)
    figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncol=3, frameon=False)
    figure.savefig(out, dpi=150, bbox_inches="tight")


def _panel(axes: Axes, everything: list[Results], what: str) -> None:
    for row, one in enumerate(everything):
        cost = getattr(one, what)
        rival = one.best_tuned(cost)
        assert rival is not None
        ours, theirs = cost(DEFAULT, 0.01), cost(rival, 0.01)
        axes.plot([ours.median, theirs.at_least], [row, row], color="lightgrey", zorder=0)
        _mark(axes, row, theirs, BLUE, "NumPyro, tuned (▸: not there yet)", first=row == 0)
        if LAPLACE in one.runs and math.isfinite(cost(LAPLACE, 0.01).median):
            _mark(axes, row, cost(LAPLACE, 0.01), BLACK, "L-BFGS and Laplace, where it gets there", first=row == 0)
        _mark(axes, row, ours, RED, "isvi.fit(model, data)", first=row == 0)
    axes.set_xscale("log")
    axes.spines[["top", "right"]].set_visible(False)


def _mark(axes: Axes, row: int, cost: Cost, color: str, label: str, first: bool) -> None:
    """A dot; where the level was not reached within the budget, an arrow from there on."""
    marker = "o" if math.isfinite(cost.median) else ">"
    axes.plot(cost.at_least, row, marker, color=color, label=label if first else None, ms=7, ls="")


if __name__ == "__main__":
    draw(ROOT / "docs" / "images" / "headline.png")
