"""``isvi fit``: fit the model in a file to the data in another."""

import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from isvi.cli.exits import fit_exit_code
from isvi.cli.plain import log_to_stderr, print_json, say
from isvi.core.errors import CheckpointError, require

if TYPE_CHECKING:
    from isvi import Fit


NOT_FINITE = (
    "the result has numbers that are not finite. A latent may have a flat posterior: give it a proper prior, or look "
    "at the log density where the fit started."
)


class FamilyName(StrEnum):
    """Families that need no options."""

    MEAN_FIELD = "mean-field"
    BLOCK = "block"
    FULL_RANK = "full-rank"


class AlgorithmName(StrEnum):
    """Algorithms, with their defaults."""

    AUTO = "auto"
    SGD = "sgd"
    ISGD = "isgd"
    SAG = "sag"
    SRA = "sra"
    ISAG = "isag"


def fit(
    model: Annotated[
        Path | None,
        typer.Argument(help="Python file that defines `model`: an isvi.Model, or a NumPyro model function."),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(help="Parquet (a file or folder), CSV, Arrow, .npz, .npy or Zarr; none for a bare density."),
    ] = None,
    cache: Annotated[
        Path | None, typer.Option(help="Folder for decoded data that are larger than memory, so that passes are quick.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for checkpoints and the result.")] = None,
    family: Annotated[FamilyName | None, typer.Option(help="By default as full as can be afforded.")] = None,
    algorithm: Annotated[AlgorithmName | None, typer.Option(help="By default chosen by isvi.")] = None,
    budget: Annotated[int | None, typer.Option(min=1, help="Model gradients that may be evaluated.")] = None,
    batch_size: Annotated[int | None, typer.Option(min=1, help="Rows per mini-batch.")] = None,
    seed: Annotated[int, typer.Option(help="Everything random follows from it.")] = 0,
    workers: Annotated[int | None, typer.Option(min=1, help="Processes that make the records; none: this one.")] = None,
    ray_address: Annotated[
        str | None, typer.Option(help="Ray cluster that the workers are on, such as `auto`; by default this machine.")
    ] = None,
    checkpoint_every: Annotated[float, typer.Option(min=0.0, help="Seconds between checkpoints.")] = 60.0,
    resume: Annotated[
        Path | None, typer.Option(help="Go on with the run in this folder; of the others only those on workers.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress.")] = False,
) -> None:
    """Fit a model to data, with checkpoints. Exits with 0 if the fit converged or used its budget, and is finite."""
    log_to_stderr()
    progress = False if quiet else True if not sys.stderr.isatty() else None
    crew = _workers(workers, ray_address)
    if resume is not None:
        result = _resumed(resume, model, data, cache, checkpoint_every, progress, crew)
        folder = resume
    else:
        if model is None or out is None:
            raise typer.BadParameter("give a model file and --out FOLDER, or --resume FOLDER.")
        if cache is not None and data is None:
            raise typer.BadParameter("--cache is for data: give them by --data.")
        options = {
            "family": _family(family),
            "budget": budget,
            "batch_size": batch_size,
            "seed": seed,
            "workers": crew,
        }
        chosen = {} if algorithm is None else {"algorithm": _algorithm(algorithm)}
        result = _fitted(model, data, cache, out, checkpoint_every, progress, **options, **chosen)
        folder = out
    _show(result, folder, as_json)
    if not result.finite:
        say(f"isvi: {NOT_FINITE}", err=True)
    raise typer.Exit(fit_exit_code(result))


def _fitted(
    model: Path,
    data: Path | None,
    cache: Path | None,
    out: Path,
    every: float,
    progress: bool | None,
    **options: Any,
) -> "Fit":
    import isvi
    from isvi.checkpoints.lock import RunLock
    from isvi.cli.data_file import open_data_file
    from isvi.cli.model_file import load_model_file
    from isvi.cli.run_folder import Command

    require(
        not (out / "run.json").exists(),
        CheckpointError,
        f"{out} already holds a run. Go on with it by `isvi fit --resume {out}`, or choose another folder.",
    )
    loaded = load_model_file(model)
    rows = None if data is None else open_data_file(data, loaded.columns, cache)
    found, kept = (None if path is None else str(path.resolve()) for path in (data, cache))
    where = isvi.Checkpoint(out, every, sigterm="return")
    with RunLock(out):
        Command(str(model.resolve()), loaded.digest, found, kept).write(out)
        return isvi.fit(loaded.model, rows, checkpoint=where, progress=progress, **options)


def _resumed(
    folder: Path,
    model: Path | None,
    data: Path | None,
    cache: Path | None,
    every: float,
    progress: bool | None,
    workers: Any,
) -> "Fit":
    import isvi
    from isvi.cli.files import opened

    loaded, rows = opened(folder, model, data, cache)
    return isvi.resume(
        isvi.Checkpoint(folder, every, sigterm="return"), loaded, rows, progress=progress, workers=workers
    )


def _workers(number: int | None, address: str | None) -> Any:
    import isvi

    if number is None:
        if address is not None:
            raise typer.BadParameter("--ray-address is for workers: say how many, --workers 8.")
        return None
    return isvi.Ray(num_workers=number, address=address)


def _family(name: FamilyName | None) -> Any:
    import isvi

    if name is None:
        return None
    families = {
        FamilyName.MEAN_FIELD: isvi.MeanField,
        FamilyName.BLOCK: isvi.Block,
        FamilyName.FULL_RANK: isvi.FullRank,
    }
    return families[name]()


def _algorithm(name: AlgorithmName) -> Any:
    import isvi

    return getattr(isvi, "Auto" if name is AlgorithmName.AUTO else name.value.upper())()


def _show(result: "Fit", folder: Path, as_json: bool) -> None:
    if as_json:
        print_json(described(result, folder))
    else:
        say(result.summary())
        say(f"saved in {folder}: isvi summary {folder}, isvi diagnose {folder}")
        if result.status.kind == "interrupted":
            say(f"go on with it: isvi fit --resume {folder}")


def described(result: "Fit", folder: Path) -> dict[str, Any]:
    """A fit as plain JSON."""
    summary = result.summary()
    return {
        "folder": str(folder),
        "status": result.status.kind,
        "message": result.status.message,
        "gradients": result.gradients,
        "steps": result.steps,
        "finite": result.finite,
        "seconds": result.seconds,
        "compile_seconds": result.compile_seconds,
        "posterior": {name: summary[name] for name in summary.names},
    }
