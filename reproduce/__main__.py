"""``python -m reproduce [FIGURE ...] [--full] [--out DIR] [--jobs N]``."""

import multiprocessing
import time
from concurrent.futures import ProcessPoolExecutor
from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer

from reproduce.results import Size, write_results
from reproduce.tasks import FIGURES, tasks

HERE = Path(__file__).parent


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
