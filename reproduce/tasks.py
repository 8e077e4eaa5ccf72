"""Independent pieces of work. A module of its own: a process that is started anew finds functions by their module, and
those of ``__main__`` are not where it looks."""

from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path

from reproduce.results import Size

FIGURES = {
    "figure1": "figure1_importance_sampling",
    "figure2": "figure2_illustration",
    "figure3": "figure3_dimensionality",
    "figure4": "figure4_isgd_against_sgd",
    "figure5": "figure5_isag",
    "figure6": "figure6_robustness",
}
PANELS = "abcdef"


def make_figure(name: str, size: Size, out: Path) -> str:
    import_module(f"reproduce.{FIGURES[name]}").run(size, out)
    return name


def make_panel(letter: str, size: Size, out: Path) -> str:
    """One panel of Figure 4: numbers only."""
    import_module(f"reproduce.{FIGURES['figure4']}").compute(letter, size, out)
    return f"figure4 ({letter})"


def make_variants(letter: str, size: Size, out: Path) -> str:
    import_module(f"reproduce.{FIGURES['figure4']}").compute_variants(letter, size, out)
    return f"figure4 ({letter}), other weights"


def tasks(names: list[str], size: Size, out: Path) -> list[Callable[[], str]]:
    """Independent pieces of work, the longest first."""
    panels: list[Callable[[], str]] = []
    if "figure4" in names:
        panels = [partial(make_panel, letter, size, out) for letter in PANELS]
        panels += [partial(make_variants, letter, size, out) for letter in "ac"]
    return panels + [partial(make_figure, name, size, out) for name in names if name != "figure4"]
