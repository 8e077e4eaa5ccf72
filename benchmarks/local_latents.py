"""Mixed models with up to 100,000 groups, whose effects are integrated out inside each record.

``python -m benchmarks.local_latents logistic 1 1000`` adds a problem to ``benchmarks/results/local_latents.csv``;
``--report`` prints the table. Compilation is part of isvi's time in every run.
"""

import argparse
import csv
from collections import defaultdict
from pathlib import Path

import numpy as np

import isvi
from benchmarks import local_rivals
from benchmarks.local_problems import Problem
from benchmarks.local_reference import Reference, reference, reported
from benchmarks.local_rivals import Answer

RESULTS = Path(__file__).parent / "results" / "local_latents.csv"
FIELDS = ["problem", "groups", "rows", "tool", "gradients", "passes", "cpu", "seconds", "mean_off", "tau_off", "sd_off"]
FIELDS += ["effective", "note"]
SEEDS = 3
RATES = (0.01, 0.03)
STEPS = 4_000


def run_isvi(problem: Problem, seed: int, **options: object) -> tuple[isvi.Fit, Answer]:
    data = isvi.data.grouped(problem.columns(), by="group")
    cpu, started = local_rivals.cpu_seconds(), local_rivals.time.perf_counter()
    fit = isvi.fit(problem.model(), data, seed=seed, progress=False, **options)
    taken = local_rivals.cpu_seconds() - cpu, local_rivals.time.perf_counter() - started
    return fit, Answer(None, *taken, fit.status.kind)


def row(problem: Problem, tool: str, answer: Answer, truth: Reference | None) -> dict[str, object]:
    """Of a tool that gives means, or maxima."""
    found: dict[str, object] = {"problem": problem.name, "groups": problem.groups, "tool": tool}
    found |= {"cpu": f"{answer.cpu:.1f}", "seconds": f"{answer.seconds:.1f}", "note": answer.note}
    if truth is not None and answer.values is not None:
        off = np.abs(answer.values - truth.mean) / truth.sd
        taus = slice(5, 5 + problem.effects)
        found |= {"mean_off": f"{off.max():.3f}", "tau_off": f"{off[taus].max():.3f}"}
        found |= {"effective": f"{truth.effective:.0f}"}
    return found


def of_fit(problem: Problem, tool: str, fit: isvi.Fit, answer: Answer, truth: Reference | None) -> dict[str, object]:
    draws = reported(fit.sample(20_000))
    found = row(problem, tool, answer._replace(values=draws.mean(axis=0)), truth)
    found |= {"rows": fit.data().size, "gradients": fit.gradients}
    found["passes"] = f"{fit.gradients / 2 / fit.data().num_batches:.1f}"
    if truth is not None:
        found["sd_off"] = f"{np.abs(np.log(draws.std(axis=0) / truth.sd)).max():.3f}"
    return found


def measure(problem: Problem, with_reference: bool, rivals: list[str]) -> list[dict[str, object]]:
    fits = [run_isvi(problem, seed) for seed in range(SEEDS)]
    draws = 1_000 if problem.groups <= 1_000 and problem.effects == 1 else 400
    truth = reference(problem, fits[0][0], draws) if with_reference else None
    rows = [of_fit(problem, "isvi", fit, answer, truth) for fit, answer in fits]
    for package in ("lme4", "glmmTMB"):
        if package in rivals:
            rows.append(row(problem, package, local_rivals.in_r(package, problem), truth))
    if "AutoNormal" in rivals:
        rows += [row(problem, "AutoNormal", local_rivals.auto_normal(problem, rate, STEPS), truth) for rate in RATES]
    for name, algorithm in (("ISGD", isvi.ISGD()), ("ISAG", isvi.ISAG())):
        if name in rivals:
            fit, answer = run_isvi(problem, 0, algorithm=algorithm, family=isvi.FullRank(), num_samples=2)
            rows.append(of_fit(problem, name, fit, answer, truth))
    return rows


def keep(rows: list[dict[str, object]]) -> None:
    new = not RESULTS.exists()
    with RESULTS.open("a", newline="") as file:
        writer = csv.DictWriter(file, FIELDS, restval="")
        if new:
            writer.writeheader()
        writer.writerows(rows)


def report() -> str:
    """A table: medians over seeds."""
    cases: dict[tuple[str, str, str], list[dict[str, str]]] = defaultdict(list)
    with RESULTS.open() as file:
        for one in csv.DictReader(file):
            cases[one["problem"], one["groups"], one["tool"]].append(one)
    lines = [
        "| problem | groups | tool | CPU s | gradients | passes | worst mean off (sd) | tau off (sd) | sds off | |"
    ]
    lines.append("| " + " | ".join(["---"] * 10) + " |")
    for (problem, groups, tool), rows in cases.items():
        best = rows if tool != "AutoNormal" else [min(rows, key=lambda one: float(one["mean_off"] or "inf"))]
        numbers = [_median(best, field) for field in ("cpu", "gradients", "passes", "mean_off", "tau_off", "sd_off")]
        notes = ", ".join(sorted({one["note"] for one in best} - {""}))
        lines.append(f"| {' | '.join([problem, f'{int(groups):,}', tool, *numbers, notes])} |")
    return "\n".join(lines)


def _median(rows: list[dict[str, str]], field: str) -> str:
    values = [float(one[field]) for one in rows if one[field] not in ("", "nan")]
    return f"{np.median(values):,.4g}" if values else ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("problem", nargs="*", help="kind, effects per group, groups")
    parser.add_argument("--no-reference", action="store_true")
    parser.add_argument("--rivals", default="", help="lme4, glmmTMB, AutoNormal, ISGD, ISAG; with commas")
    parser.add_argument("--report", action="store_true")
    arguments = parser.parse_args()
    if arguments.report:
        print(report())
        return
    kind, effects, groups = arguments.problem
    rivals = arguments.rivals.split(",")
    if {"lme4", "glmmTMB"} & set(rivals) and not local_rivals.installed():
        print("R with lme4 and glmmTMB is not installed: left out")
        rivals = [name for name in rivals if name not in ("lme4", "glmmTMB")]
    rows = measure(Problem(kind, int(effects), int(groups)), not arguments.no_reference, rivals)
    keep(rows)
    for one in rows:
        print(one)


if __name__ == "__main__":
    main()
