"""What is measured: whether a model is taken, how its fit ended, how far off it is, and whether it says so."""

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import date
from typing import Any

import numpy as np

import isvi
from benchmarks.models.case import Case
from benchmarks.models.reference import Reference, has_sd, moving

MEAN_BAR, SD_BAR = 0.25, 0.25
"""Right: every mean within a quarter of a posterior sd, every sd within a quarter of itself. What "good" promises."""
RESAMPLED = 4000


@dataclass(frozen=True)
class Errors:
    """How far means and sds are from the reference's, at their worst."""

    mean: float = math.nan
    smallest_sd: float = math.nan
    largest_sd: float = math.nan
    where: str = ""

    @property
    def right(self) -> bool:
        return bool(self.mean <= MEAN_BAR and self.smallest_sd >= 1 - SD_BAR and self.largest_sd <= 1 + SD_BAR)


@dataclass(frozen=True)
class Result:
    """How one method did on one model.

    Attributes:
        language, model, method, seed: of which run.
        message: why it was refused or failed, or the reason of its status.
        status: how the fit ended; ``"refused"`` if it never began, ``"failed"`` if something was raised.
        verdict: of ``fit.diagnose()``.
        seconds: of the processor in the call, with compilation.
        errors: of the fit's means and sds.
        resampled: of those of 4,000 draws of ``fit.resample``.
        measured: on which day; empty before ``Nested`` was part of the default.
    """

    language: str
    model: str
    method: str
    seed: int
    status: str
    message: str = ""
    gradients: int = 0
    seconds: float = math.nan
    verdict: str = ""
    k_hat: float = math.nan
    elbo: float = math.nan
    reason: str = ""
    measured: str = ""
    errors: Errors = Errors()
    resampled: Errors = Errors()

    @property
    def accepted(self) -> bool:
        return self.status != "refused"


def compare(reference: Reference, mean: Mapping[str, Any], sd: Mapping[str, Any]) -> Errors:
    """By every entry of every latent that both have, that is not constant and has an sd; fails if there is none."""
    off, ratio, names = [], [], []
    for name in reference.latents.keys() & mean.keys():
        truth = reference.latents[name]
        chosen = moving(truth) & has_sd(truth)
        if np.shape(mean[name]) != chosen.shape:
            raise ValueError(f"{name} has shape {np.shape(mean[name])}, and its reference {chosen.shape}.")
        off.append(((np.asarray(mean[name]) - truth["mean"]) / np.where(chosen, truth["sd"], 1))[chosen])
        ratio.append((np.asarray(sd[name]) / np.where(chosen, truth["sd"], 1))[chosen])
        names += [name + (str(list(index)) if len(index) else "") for index in np.argwhere(chosen).tolist()]
    off, ratio = np.abs(np.concatenate(off)), np.concatenate(ratio)
    if not (np.isfinite(off).all() and np.isfinite(ratio).all()):
        return Errors(math.inf, 0.0, math.inf, "not finite")
    return Errors(float(off.max()), float(ratio.min()), float(ratio.max()), names[int(off.argmax())])


def of_draws(reference: Reference, draws: Mapping[str, np.ndarray]) -> Errors:
    values = {name: np.asarray(draw, float) for name, draw in draws.items()}
    means, sds = ({name: getattr(v, what)(axis=0) for name, v in values.items()} for what in ("mean", "std"))
    return compare(reference, means, sds)


def numpyro_model(case: Case) -> tuple[Any, Any]:
    """The model and the data, as they are passed to ``isvi.fit``."""
    data = case.data()
    return isvi.from_numpyro(case.model, **data.bound), data.rows


def run_isvi(
    case: Case,
    reference: Reference | None,
    seed: int,
    language: str = "NumPyro",
    given: Callable[[Case], tuple[Any, Any]] = numpyro_model,
) -> Result:
    """``isvi.fit`` and ``fit.diagnose()``, with nothing chosen."""
    result = Result(language, case.name, "isvi", seed, "refused", measured=date.today().isoformat())
    started = time.process_time()
    try:
        model, rows = given(case)
        fit = isvi.fit(model, rows, seed=seed, progress=False)
    except isvi.IsviError as refusal:
        return replace(result, message=_line(refusal), seconds=time.process_time() - started)
    except Exception as error:  # whatever it is, it is part of the table
        return replace(result, message=f"{type(error).__name__}: {_line(error)}", seconds=time.process_time() - started)
    result = replace(
        result,
        status=fit.status.kind,
        message=_line(fit.status.message),
        gradients=fit.gradients,
        seconds=time.process_time() - started,
    )
    if reference is not None and reference.converged:
        result = replace(result, errors=compare(reference, fit.mean(), fit.sd()))
    try:
        return _diagnosed(result, fit, reference)
    except Exception as error:
        return replace(result, verdict="failed", reason=f"{type(error).__name__}: {_line(error)}")


def _diagnosed(result: Result, fit: isvi.Fit, reference: Reference | None) -> Result:
    told = fit.diagnose()
    result = replace(
        result,
        verdict=told.verdict,
        k_hat=told.k_hat,
        elbo=told.elbo.value,
        reason=_line(told.reasons[0] if told.reasons else ""),
    )
    if reference is None or not reference.converged:
        return result
    return replace(result, resampled=of_draws(reference, fit.resample(RESAMPLED)))


def _line(text: Any) -> str:
    return " ".join(str(text).split())[:600]
