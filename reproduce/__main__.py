"""``python -m reproduce [FIGURE ...] [--full] [--out DIR] [--jobs N]``."""

import multiprocessing
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer

from reproduce.results import Size, write_results

FIGURES = {
    "figure1": "figure1_importance_sampling",
    "figure2": "figure2_illustration",
    "figure3": "figure3_dimensionality",
    "figure4": "figure4_isgd_against_sgd",
    "figure5": "figure5_isag",
    "figure6": "figure6_robustness",
}
PANELS = "abcdef"
HERE = Path(__file__).parent


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


def main(
    figures: Annotated[list[str] | None, typer.Argument(help="figure1 ... figure6; all by default.")] = None,
    full: Annotated[bool, typer.Option(help="The paper's sizes instead of reduced ones.")] = False,
    out: Annotated[Path | None, typer.Option(help="Where to write; reproduce/results for --full.")] = None,
    jobs: Annotated[int, typer.Option(help="Figures and panels computed side by side.")] = 1,
) -> None:
    """Regenerate the paper's figures, the numbers behind them, and RESULTS.md."""
    names = figures or list(FIGURES)
    unknown = sorted(set(names) - set(FIGURES))
    if unknown:
        raise typer.BadParameter(f"{unknown} are not figures; choose from {', '.join(FIGURES)}.")
    size: Size = "full" if full else "reduced"
    out = out or (HERE / "results" if full else Path("reproduce-output"))
    started = time.perf_counter()
    pool = ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) if jobs > 1 else None
    work = tasks(names, size, out)
    finished = (future.result() for future in [pool.submit(task) for task in work]) if pool else (t() for t in work)
    for name in finished:
        typer.echo(f"{time.perf_counter() - started:6.0f} s  {name}")
    if pool:
        pool.shutdown()
    if "figure4" in names:
        import_module(f"reproduce.{FIGURES['figure4']}").conclude(size, out)
    write_results(out, size, "five seeds" if full else "three seeds")
    typer.echo(f"wrote {out / 'RESULTS.md'}")


if __name__ == "__main__":
    typer.run(main)
