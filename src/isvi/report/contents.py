"""What a report says beside its figures: numbers, sources and versions, as plain Python values."""

import inspect
import platform
import textwrap
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from isvi.data.dataset import Dataset
from isvi.results.moments import Marginals
from isvi.results.summary import COLUMNS, summarize

if TYPE_CHECKING:
    from isvi.diagnosis import Diagnosis
    from isvi.results.fit import Fit

ENTRIES_DRAWN, FEWEST_DRAWS, MOST_DRAWS = 10**7, 200, 10_000
"""Draws times entries that are in memory together for the table, and bounds on the draws."""
PACKAGES = ("isvi", "jax", "numpyro", "numpy", "optax", "arviz-stats")
JUDGED = ("mean off by (sds)", "sd ratio", "k-hat")


def entries_table(fit: "Fit", told: "Diagnosis | None", seed: int) -> tuple[list[str], list[list[Any]]]:
    """Columns and rows: a name and numbers for every entry; None for what is not known."""
    size = max(1, sum(latent.size for latent in fit.model.latents.values()))
    number = max(FEWEST_DRAWS, min(MOST_DRAWS, ENTRIES_DRAWN // size))
    summary = summarize({name: Marginals.of_draws(draws) for name, draws in fit.sample(number, seed).items()}, "", 0)
    judged = _judged(told)
    width = 0 if told is None else len(JUDGED)
    rows = [
        [name, *_numbers(values), *judged.get(name, [None] * width)]
        for name, values in zip(summary.names, summary.values, strict=True)
    ]
    return ["latent", *COLUMNS, *(JUDGED if told is not None else ())], rows


def _judged(told: "Diagnosis | None") -> dict[str, list[float | None]]:
    if told is None:
        return {}
    entries = told.entries
    hidden = np.full(len(entries.names), np.nan)
    shown = (entries.mean_error, entries.sd_ratio) if entries.trusted else (hidden, hidden)
    columns = zip(*shown, entries.k_hat, strict=True)
    return {
        name: [round(float(value), 3) if np.isfinite(value) else None for value in row]
        for name, row in zip(entries.names, columns, strict=True)
    }


def _numbers(values: Any) -> list[float | None]:
    """With four digits, which is what is shown."""
    return [float(f"{value:.4g}") if np.isfinite(value) else None for value in values]


def facts(fit: "Fit") -> list[tuple[str, str]]:
    """What was fitted to what, and how it ended."""
    data = fit.dataset
    size = sum(latent.size for latent in fit.model.latents.values())
    shown = [("approximation", f"{fit.approximation.description}, over {size:,} entries of latents")]
    if data is not None and (not isinstance(data, Dataset) or data.full is not None):
        shown.append(("data", f"{data.size:,} rows in {data.num_batches:,} mini-batches{_columns(data)}"))
    shown += [
        ("model gradients", f"{fit.gradients:,}, in {fit.steps:,} steps"),
        ("seconds", f"{fit.seconds:.1f}, and {fit.compile_seconds:.1f} for compiling"),
        ("ended by", str(fit.status)),
    ]
    if fit.skipped:
        shown.append(("skipped", f"{fit.skipped:,} steps, as something was not finite"))
    return shown


def _columns(data: Any) -> str:
    first = data.first.full
    named = jax.tree_util.tree_leaves_with_path(first)
    shown = [f"{jax.tree_util.keystr(path, simple=True) or 'data'} {leaf.shape[2:]}" for path, leaf in named[:12]]
    return f": {', '.join(shown)}{', ...' if len(named) > 12 else ''}"


def latents(fit: "Fit") -> list[tuple[str, str, str]]:
    """Names, shapes and supports."""
    return [
        (name, str(latent.shape) if latent.shape else "scalar", str(latent.constraint).strip("<>").split(" object")[0])
        for name, latent in fit.model.latents.items()
    ]


def sources(fit: "Fit") -> list[str]:
    """The text of the functions that the model is made of, where Python can tell."""
    model = fit.model
    functions: list[Any] = [model.log_prior, model.log_likelihood, model.simulate]
    traced = getattr(getattr(model.log_prior, "__self__", None), "traced", None)
    if traced is not None:  # a front end's own functions say nothing: the user's does
        functions = [traced.source.function]
    texts = [_source(function) for function in functions if function is not None]
    return list(dict.fromkeys(text for text in texts if text))


def _source(function: Any) -> str | None:
    try:
        return textwrap.dedent(inspect.getsource(function)).rstrip()
    except (OSError, TypeError):
        return None


def settings(fit: "Fit") -> list[tuple[str, str]]:
    return [(name, str(value)) for name, value in fit.settings.items()]


def versions(packages: Sequence[str] = PACKAGES) -> list[tuple[str, str]]:
    found = []
    for package in packages:
        try:
            found.append((package, version(package)))
        except PackageNotFoundError:
            continue
    machine = f"{platform.system()} {platform.machine()}, {jax.default_backend()}"
    return [*found, ("Python", platform.python_version()), ("machine", machine)]


def today() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
