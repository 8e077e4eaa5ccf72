"""``peers.png`` and ``peers.svg``: gaps against model gradients and against seconds."""

import numpy as np
from matplotlib.axes import Axes

from benchmarks.report import DEFAULT, Results, collect
from benchmarks.store import Store, Stored
from reproduce.plotting import BLACK, BLUE, GREEN, PAGE, PINK, RED, SKY, panels, save

STYLES = {
    DEFAULT: {"color": RED, "linewidth": 2.2, "zorder": 5},
    "NumPyro full rank": {"color": BLUE},
    "NumPyro low rank": {"color": SKY, "linestyle": "--"},
    "NumPyro mean field": {"color": GREEN, "linestyle": ":"},
    "L-BFGS + Laplace": {"color": BLACK},
    "Pathfinder": {"color": PINK},
}
SHORT_TITLES = {
    "a": "diagonal Gaussian",
    "b": "linear regression",
    "b'": "linear regression, badly scaled",
    "d": "flights",
    "e": "flights with destinations",
    "f": "Poisson regression",
}
LOWEST, HIGHEST = 3e-4, 1e4


def draw(store: Store) -> None:
    everything = [results for results in collect(store) if results.letter in SHORT_TITLES]
    if not everything:
        return
    figure, axes = panels(len(everything), 2, width=PAGE, height=0.5 + 1.75 * len(everything), sharey="row")
    for row, results in zip(axes, everything, strict=True):
        for one, cost in zip(row, ("gradients", "seconds"), strict=True):
            _panel(one, results, cost)
        row[0].set_ylabel("gap, nats per latent")
        row[0].set_title(f"({results.letter}) {SHORT_TITLES[results.letter]}", loc="left")
    axes[-1][0].set_xlabel("model gradients of one mini-batch")
    axes[-1][1].set_xlabel("CPU seconds, without compilation")
    handles = {line.get_label(): line for one in axes.flat for line in one.get_lines() if line.get_label()[0] != "_"}
    names = [name for name in STYLES if name in handles]
    figure.legend([handles[name] for name in names], names, loc="outside upper center", ncols=4)
    save(figure, store.folder, "peers")


def _panel(axes: Axes, results: Results, cost: str) -> None:
    for rival, runs in results.runs.items():
        for index, run in enumerate(runs):
            x, gaps = _curve(run, cost)
            main = index == 0
            style = STYLES[rival] | ({} if main else {"alpha": 0.35, "linewidth": 0.8})
            axes.plot(x, gaps, label=rival if main else None, **style)
            if rival == DEFAULT and len(x):
                axes.plot(x[-1], gaps[-1], marker="o", markersize=4 if main else 2.5, color=RED, zorder=6)
    axes.axhline(0.01, color="0.6", linewidth=0.6, zorder=0)
    axes.set(xscale="log", yscale="log", ylim=(LOWEST, HIGHEST))
    axes.set_yticks([1e-3, 1e-1, 1e1, 1e3])


def _curve(run: Stored, cost: str) -> tuple[np.ndarray, np.ndarray]:
    x = np.array([point.gradients if cost == "gradients" else point.time.cpu for point in run.points], float)
    gaps = np.maximum(run.gaps(), LOWEST)
    shown = (x > 0) & np.isfinite(gaps)
    return x[shown], gaps[shown]
