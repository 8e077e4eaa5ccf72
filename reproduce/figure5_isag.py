"""Figure 5: I-SAG against SAG and SRA, all begun with one pass of I-SGD; and what I-SAG costs per iteration."""

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

import isvi
from reproduce.comparison import LEVELS, Row
from reproduce.plotting import BLUE, COLUMN, GREEN, ORANGE, RED, panels, save
from reproduce.problems import Problem, diagonal_gaussian
from reproduce.results import Claim, Size, judge, write_claims, write_table
from reproduce.runs import Curve, Runner, Setting, Spread, best_of, grid, steps_per_record

ALPHA = 0.9
AUTHORS = Setting(0.05, 100)
METHODS: dict[str, tuple[Any, Any]] = {
    "SAG": (isvi.Reparameterization(), isvi.SAG()),
    "SRA": (isvi.Reparameterization(), isvi.SRA(ALPHA)),
    "I-SAG": (isvi.Reparameterization(), isvi.ISAG()),
    "I-SAG, normalised": (isvi.Reparameterization(self_normalize=True), isvi.ISAG()),
}
COLOURS = dict(zip(METHODS, (ORANGE, BLUE, RED, GREEN), strict=True))


def make_problem(size: Size) -> Problem:
    if size == "toy":
        return diagonal_gaussian(1000, 5, 100)
    return diagonal_gaussian(10_000, 50, 500) if size == "reduced" else diagonal_gaussian(50_000, 500, 1000)


def first_pass_counts(records: int, num_batches: int, seed: int) -> np.ndarray:
    """I-SGD's numbers of steps until the last mini-batch of the first pass, one each from there on."""
    counts = np.ones(records, int)
    counts[: num_batches - 1] = steps_per_record(0.9, num_batches - 1, seed)
    return counts


def measure(
    problem: Problem, names: Iterable[str], settings: list[Setting], records: int, seeds: int
) -> dict[str, dict]:
    """For every method: the sweep, its best setting, and timed runs there and at the authors' setting."""
    found = {}
    for name in names:
        estimator, algorithm = METHODS[name]
        runner = Runner(problem, estimator, algorithm)
        counts = first_pass_counts(records, problem.dataset.num_batches, 0)
        sweep = runner.sweep(settings, 0, records, counts, checkpoints=30)
        own = best_of(settings, sweep, problem.best - 0.1 * problem.latents)
        runs = {
            label: [runner.run(setting, seed, records, checkpoints=40) for seed in range(seeds)]
            for label, setting in (("authors' setting", AUTHORS), ("tuned", own))
        }
        found[name] = {"sweep": sweep, "own": own, "runs": runs}
    return found


def gaps(problem: Problem, curves: list[Curve]) -> Spread:
    return Spread.of([(problem.best - float(curve.elbo[-1])) / problem.latents for curve in curves])


def seconds_per_step(curves: list[Curve], num_batches: int) -> float:
    """CPU seconds per iteration after the first pass."""
    costs = []
    for curve in curves:
        begin = int(np.searchsorted(curve.gradients, 2 * num_batches))
        steps = curve.steps[-1] - curve.steps[begin]
        costs.append((curve.cpu_seconds[-1] - curve.cpu_seconds[begin]) / max(steps, 1))
    return float(np.median(costs))


def summary_rows(problem: Problem, found: dict[str, dict]) -> list[Row]:
    rows: list[Row] = []
    for name, result in found.items():
        for label, curves in result["runs"].items():
            spread = gaps(problem, curves)
            row: Row = {"method": name, "comparison": label}
            row["setting"] = str(result["own"] if label == "tuned" else AUTHORS)
            row |= {"records": int(curves[0].gradients[-1]), "gap_median": spread.median}
            row |= {"gap_low": spread.low, "gap_high": spread.high}
            row["microseconds_per_step"] = 1e6 * seconds_per_step(curves, problem.dataset.num_batches)
            for level in LEVELS:
                cost = Spread.of([c.until(problem.best - level * problem.latents)["gradients"] for c in curves])
                row |= {f"gradients_to_{level:g}": cost.median, f"reached_{level:g}": cost.reached}
            rows.append(row)
    return rows


def curve_rows(problem: Problem, found: dict[str, dict]) -> list[Row]:
    return [
        {
            "method": name,
            "comparison": label,
            "seed": seed,
            "gradients": int(curve.gradients[i]),
            "steps": int(curve.steps[i]),
            "cpu_seconds": float(curve.cpu_seconds[i]),
            "gap_per_latent": float((problem.best - curve.elbo[i]) / problem.latents),
        }
        for name, result in found.items()
        for label, curves in result["runs"].items()
        for seed, curve in enumerate(curves)
        for i in range(len(curve.gradients))
    ]


def draw(problem: Problem, found: dict[str, dict], out: Path) -> None:
    figure, axes = panels(2, 1, COLUMN, 4.0, sharex=True)
    for axis, label in zip(axes[:, 0], ("authors' setting", "tuned"), strict=True):
        for name, result in found.items():
            tracks = [(problem.best - curve.elbo[1:]) / problem.latents for curve in result["runs"][label]]
            x = result["runs"][label][0].gradients[1:]
            for track in tracks:
                axis.plot(x, track, color=COLOURS[name], linewidth=0.5, alpha=0.35)
            axis.plot(x, np.median(tracks, axis=0), color=COLOURS[name], label=name)
        axis.axvline(problem.dataset.num_batches, color="0.6", linewidth=0.6, linestyle=":")
        axis.set(xscale="log", yscale="log", ylabel="ELBO gap (nats per latent)")
        title = "one rate (0.05, x0.9 per 100 steps)" if label != "tuned" else "each at its best rate"
        axis.set_title(title, loc="left")
    axes[1, 0].set_xlabel("model gradients evaluated")
    axes[0, 0].legend()
    save(figure, out, "figure5_isag")


def run(size: Size, out: Path) -> list[Claim]:
    problem = make_problem(size)
    records, seeds = {"toy": (300, 1), "reduced": (2000, 3), "full": (3000, 5)}[size]
    rates = (0.3, 0.1, 0.03, 0.01) if size != "toy" else (0.1, 0.03)
    settings = grid(rates, (math.inf, 100, 300))
    names = METHODS if size != "toy" else ("SAG", "SRA", "I-SAG")
    found = measure(problem, names, settings, records, seeds)
    rows = summary_rows(problem, found)
    write_table(out, "figure5_summary", rows)
    write_table(out, "figure5_runs", curve_rows(problem, found))
    draw(problem, found, out)
    claims = [order_claim(rows, "authors' setting"), order_claim(rows, "tuned"), overhead_claim(problem, rows)]
    write_claims(out, "figure5", claims)
    return claims


def order_claim(rows: list[Row], label: str) -> Claim:
    mine = {row["method"]: row for row in rows if row["comparison"] == label}
    text = "; ".join(f"{name} {method_text(row)}" for name, row in mine.items())
    orders = [[mine[name][column] for name in ("I-SAG", "SRA", "SAG")] for column in ("gap_median", "gradients_to_10")]
    ahead = [isag < min(sra, sag) for isag, sra, sag in orders]
    ordered = all(isag < sra < sag for isag, sra, sag in orders)
    where = "at the authors' rate" if label != "tuned" else "each tuned"
    return Claim(
        "5",
        f"I-SAG outperforms SRA (alpha = 0.9), which outperforms SAG, {where}",
        "I-SAG, then SRA, then SAG",
        f"model gradients to 10 nats per latent, and gap in nats per latent after {mine['SAG']['records']:,}: {text}",
        "holds" if ordered else "holds in part" if any(ahead) else "does not hold",
        WHY_ORDER[label],
    )


def method_text(row: Row) -> str:
    gap = Spread(row["gap_median"], row["gap_low"], row["gap_high"], 5, 5).text()
    count = row["gradients_to_10"]
    arrived = f"{count:,.0f}" if math.isfinite(count) else "not reached"
    return f"{arrived}, gap {gap} (rate {row['setting']})"


WHY_ORDER = {
    "authors' setting": "At one decaying rate the three end together: where they end is decided in the first pass, "
    "by I-SGD, before they differ. Normalised weights are much better because over the single record of the first "
    "pass they are no weights at all, which at this rate is the better start (see Figure 4's other weights).",
    "tuned": "Tuned, I-SAG gets close about ten times sooner than the other two: after the first pass SAG and SRA "
    "first lose what I-SGD had won, because their stored gradients are those of a q far away, while I-SAG goes on. "
    "By the end of the budget the decaying rate has brought SRA level with it. Normalising the weights over the "
    "memory (not in the paper) is better than either. Of five seeds one of SRA's and one of I-SAG's went astray in "
    "the first pass, at a rate that is good later.",
}


def overhead_claim(problem: Problem, rows: list[Row]) -> Claim:
    cost = {row["method"]: row["microseconds_per_step"] for row in rows if row["comparison"] == "tuned"}
    overhead = cost["I-SAG"] / cost["SAG"] - 1
    batches, latents = problem.dataset.num_batches, problem.latents
    return Claim(
        "5",
        "I-SAG's overhead over SAG is about 30% per iteration",
        "about 30%",
        f"{100 * overhead:+.0f}% in CPU time: {cost['I-SAG']:.0f} microseconds per iteration against {cost['SAG']:.0f} "
        f"for SAG and {cost['SRA']:.0f} for SRA ({batches} mini-batches, {latents:,} latents)",
        judge(-overhead, holds=-0.6, in_part=-1.0),
        "The overhead is the memory's size (mini-batches times latents) against the cost of one mini-batch's gradient. "
        "A dearer model makes it smaller, more mini-batches make it larger; 30% is one point on that line.",
    )
