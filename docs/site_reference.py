"""Pages of the reference, written from the names that the package exports: one place to add a name."""

import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Any

import isvi
import isvi.data
import isvi.families
import isvi.plots

if TYPE_CHECKING:
    from sphinx.application import Sphinx

GROUPS: dict[str, tuple[str, str, Any]] = {
    "fitting": ("Fitting", "From a model to a fit.", ["fit", "resume", "calibrate", "keep_compiled", "cite"]),
    "model": (
        "Models and latents",
        "What is unknown, and its densities.",
        [
            *("Model", "Latent", "real", "positive", "interval", "unit_interval", "simplex", "ordered", "constrained"),
            *("from_numpyro", "from_pymc", "from_stan", "from_gradient"),
        ],
    ),
    "results": (
        "Results",
        "What came out, and whether to trust it.",
        ["Fit", "Diagnosis", "Calibration", "Comparison", "ElboEstimate", "History", "Status", "compare", "load"],
    ),
    "families": ("Families", "Shapes of the approximation.", isvi.families),
    "algorithms": (
        "Algorithms and estimators",
        "When the model is evaluated, and how gradients are made of it.",
        [
            *("Auto", "Natural", "SGD", "ISGD", "SAG", "SRA", "ISAG", "Adaptive", "FixedSteps", "Random"),
            *(
                "Estimator",
                "Reparameterization",
                "ScoreFunction",
                "Record",
                "Method",
                "State",
                "Info",
                "build",
                "Target",
            ),
            *("natural_gradient", "scale_by_fisher", "bound_kl"),
        ],
    ),
    "data": ("Data", "Rows, in memory or not.", isvi.data),
    "running": (
        "Running",
        "Checkpoints, callbacks, workers, errors.",
        [
            *("Checkpoint", "Callback", "TensorBoard", "MLflow", "Pool", "Ray", "with_workers"),
            *("IsviError", "ModelError", "DataError", "ConfigurationError", "CheckpointError", "WorkerError"),
        ],
    ),
    "plots": ("Plots", "What a person looks at; needs `isvi[plots]`.", isvi.plots),
}


def setup(app: "Sphinx") -> dict[str, Any]:
    app.connect("builder-inited", lambda app: write_pages(Path(app.srcdir) / "docs" / "reference"))
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def names() -> set[str]:
    """Everything that has an entry."""
    return {name for _, _, group in GROUPS.values() for _, name in _named(group)}


def write_pages(folder: Path) -> None:
    """A page for every group; only where it differs, so that nothing is built twice."""
    folder.mkdir(exist_ok=True)
    for file, (title, about, names) in GROUPS.items():
        lines = [f"# {title}", "", about, ""]
        for where, name in _named(names):
            lines += [f"## {name}", "", "```{eval-rst}", f".. {_directive(where, name)}:: {where}.{name}", "```", ""]
        text = "\n".join(lines)
        path = folder / f"{file}.md"
        if not path.exists() or path.read_text() != text:
            path.write_text(text)


def _named(names: Any) -> list[tuple[str, str]]:
    if isinstance(names, list):
        return [("isvi", name) for name in names]
    return [(names.__name__, name) for name in names.__all__]


def _directive(where: str, name: str) -> str:
    thing = getattr(__import__(where, fromlist=[name]), name)
    if inspect.isclass(thing):
        return "autoexception" if issubclass(thing, BaseException) else "autoclass"
    return "autofunction" if callable(thing) else "autodata"
