"""The tables: a row per model, and what the bars are held against."""

import math
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from benchmarks.models.measure import Errors, Result
from benchmarks.models.reference import Reference
from benchmarks.models.reference import read as read_reference

BEST_GAUSSIAN = "best Gaussian"
HEAD = (
    "| model | entries | seed | status | gradients | seconds | worst mean | at | sds | right | verdict | true | "
    "resampled | Gaussian right | measured |"
)


def truth_of(result: Result) -> str:
    """Whether status and verdict are as promised; empty where there is no truth to tell by."""
    if math.isnan(result.errors.mean):
        return ""
    said = []
    if result.verdict == "good" and not result.errors.right:
        said.append("**good but wrong**")
    if result.verdict == "usable" and not (result.resampled.right or result.errors.right):
        said.append("**usable but wrong**")
    if result.verdict == "poor" and result.errors.right:
        said.append("poor but right")
    if result.status == "converged" and not result.errors.right:
        told = result.verdict == "poor" or (result.verdict == "usable" and result.resampled.right)
        said.append("converged, not right, said so" if told else "**converged but wrong**")
    return ", ".join(said) or "yes"


def markdown(results: Sequence[Result]) -> str:
    parts = ["# Models as other people write them", INTRODUCTION]
    for language in sorted({result.language for result in results}):
        ours = [result for result in results if result.language == language]
        parts += [f"## {language}", *counts(ours), table(ours), refusals(ours)]
        rivals = [result for result in ours if result.method not in ("isvi", BEST_GAUSSIAN)]
        if rivals:
            parts += [f"### Rivals, {language}", rival_table(ours)]
    return "\n\n".join(part for part in parts if part) + "\n"


INTRODUCTION = """\
`isvi.fit(model, data, seed=s)` and `fit.diagnose()` with nothing chosen, on models in the usual idiom of each
language. Errors are against NUTS (four chains, double precision): the worst mean in posterior sds, and where; the
smallest and the largest ratio of sds; over all entries of all latents in constrained space, but for those whose sd
the draws of NUTS do not agree about (half-Cauchy scales may have none). Right: every mean within 0.25 sds, every sd
within 25%. "True" is whether the verdict kept what it promises (`docs/diagnosis.md`) and "converged" is right.
Seconds are the processor's for the whole call, with compilation. "Gaussian right": whether the best full-rank
Gaussian in unconstrained space, found from the reference, is right. Models without a reference
(NUTS did not converge, or was not run yet) have no errors. Rows without a day were measured before `Nested` was part of
the default."""


def counts(results: Sequence[Result]) -> list[str]:
    fits = [result for result in results if result.method == "isvi"]
    models = {result.model for result in fits}
    refused = {result.model for result in fits if not result.accepted}
    known = [result for result in fits if not math.isnan(result.errors.mean)]
    right = [result for result in known if result.errors.right]
    possible = {r.model for r in results if r.method == BEST_GAUSSIAN and r.errors.right}
    reachable = [result for result in known if result.model in possible]
    told = [truth_of(result) for result in known]
    lines = [
        f"- accepted: {len(models) - len(refused)} of {len(models)} models",
        f"- right: {len(right)} of {len(known)} fits with a reference",
        f"- right where the best Gaussian is: {sum(r.errors.right for r in reachable)} of {len(reachable)}",
        f'- "good" but wrong: {sum("good but" in one for one in told)}; "usable" but resampling is wrong: '
        f"{sum('usable but' in one for one in told)}",
        f'- "converged" but wrong, and not said by the verdict: {sum("converged but" in one for one in told)}; said: '
        f"{sum('said so' in one for one in told)}",
        f'- "poor" but right: {sum("poor but right" in one for one in told)}',
    ]
    return ["\n".join(lines)]


def table(results: Sequence[Result]) -> str:
    gaussian = {result.model: result for result in results if result.method == BEST_GAUSSIAN}
    lines = [HEAD, "|" + " --- |" * HEAD.count("| ")]
    for result in results:
        if result.method == "isvi" and result.accepted:
            lines.append(_line(result, read_reference(result.model), gaussian.get(result.model)))
    return "\n".join(lines)


def _line(result: Result, reference: Reference | None, gaussian: Result | None) -> str:
    errors, known = result.errors, not math.isnan(result.errors.mean)
    cells = [
        result.model,
        str(reference.size) if reference else "",
        str(result.seed),
        result.status,
        f"{result.gradients:,}",
        f"{result.seconds:.0f}",
        f"{errors.mean:.2f}" if known else "no reference",
        errors.where if known else "",
        _sds(errors),
        ("yes" if errors.right else "no") if known else "",
        result.verdict,
        truth_of(result),
        _both(result.resampled),
        ("yes" if gaussian.errors.right else f"no ({_both(gaussian.errors)})") if gaussian else "",
        result.measured,
    ]
    return "| " + " | ".join(cells) + " |"


def _sds(errors: Errors) -> str:
    return "" if math.isnan(errors.mean) else f"{errors.smallest_sd:.2f} - {errors.largest_sd:.2f}"


def _both(errors: Errors) -> str:
    return "" if math.isnan(errors.mean) else f"{errors.mean:.2f}; {_sds(errors)}"


def refusals(results: Sequence[Result]) -> str:
    told = {result.model: result.message for result in results if result.method == "isvi" and not result.accepted}
    return "\n".join(["Refused:", "", *(f"- {model}: {message}" for model, message in told.items())]) if told else ""


def rival_table(results: Sequence[Result]) -> str:
    """Worst mean and sds, by method; isvi's first seed first."""
    by_model: dict[str, dict[str, Result]] = defaultdict(dict)
    for result in results:
        if result.seed == 0:
            by_model[result.model][result.method] = result
    methods = sorted({result.method for result in results}, key=lambda one: (one != "isvi", one))
    lines = ["| model | " + " | ".join(methods) + " |", "| --- |" + " --- |" * len(methods)]
    for model, found in by_model.items():
        cells = [_short(found[method]) if method in found else "" for method in methods]
        lines.append(f"| {model} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _short(result: Result) -> str:
    if math.isnan(result.errors.mean):
        return result.status
    return ("**right** " if result.errors.right else "") + f"{_both(result.errors)}, {result.gradients:,} gradients"


def write(results: Sequence[Result], path: Path) -> None:
    path.write_text(markdown(results))
