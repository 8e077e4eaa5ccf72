"""How often is the verdict of ``fit.diagnose()`` wrong, in either direction?

Posteriors whose truth is known are fitted with families that can take them. Each fit is diagnosed as it is and, as real
fits are mostly either exact or far off, again after its parameters were moved at random. A verdict is held to what
`docs/diagnosis.md` promises. Run with ``python -m benchmarks.verdicts``, and with ``--aside --out
benchmarks/results/verdicts_aside.csv`` for the other shapes; writes ``benchmarks/results/verdicts.csv`` and the tables
of ``verdicts.md``. What is there already is kept: a run that was broken off goes on. Fits are kept in a folder
(``--fits``), so that another version of the diagnosis can be asked about the same ones: ``--out before.csv``, and then
``--before before.csv``.
"""

import argparse
import csv
import pickle
import time
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, get_type_hints

import jax
import numpy as np

import isvi
from benchmarks.verdict_aside import aside
from benchmarks.verdict_posteriors import Posterior, generated
from isvi.data import Dataset
from isvi.families import approximate
from isvi.results.history import History
from isvi.results.status import Status

RESULTS = Path(__file__).parent / "results"
MOVES = 2
"""Versions of every fit with its parameters moved."""
RESAMPLED = 4000


@dataclass(frozen=True)
class Case:
    """A verdict, and what is true."""

    kind: str
    posterior: str
    size: int
    family: str
    moved: int
    verdict: str
    mean_error: float
    """The largest error of a mean of q, in posterior sds."""
    sd_error: float
    """The largest |log| of an sd of q over the posterior's."""
    resampled_mean_error: float
    resampled_sd_error: float
    k_hat: float
    effective: float
    chains: int
    """Short chains that were run, as the weights could not tell."""
    passes: int
    seconds: float
    reason: str

    @property
    def right(self) -> bool:
        """Whether q is as "good" promises."""
        return bool(self.mean_error <= 0.25 and self.sd_error <= np.log(1.25))

    @property
    def resampled_right(self) -> bool:
        return bool(self.resampled_mean_error <= 0.25 and self.resampled_sd_error <= np.log(1.25))


def errors(posterior: Posterior, mean: Any, sd: Any) -> tuple[float, float]:
    flat_mean, flat_sd = (
        np.concatenate([np.ravel(one[name]) for name in posterior.model.latents]) for one in (mean, sd)
    )
    with np.errstate(divide="ignore"):
        off = np.abs(np.log(flat_sd / posterior.sd)).max()
    return float(np.abs((flat_mean - posterior.mean) / posterior.sd).max()), float(off)


def fitted(posterior: Posterior, family: str, folder: Path) -> isvi.Fit:
    """The fit, of which only the parameters are kept on disk."""
    name = f"{posterior.kind}-{posterior.name}-{posterior.size}-{family}".replace(" ", "_").replace("/", "_")
    digest = zlib.crc32(np.concatenate([posterior.mean, posterior.sd]).tobytes())
    path = folder / f"{name}-{digest:08x}.pickle"
    if not path.exists():
        fit = isvi.fit(posterior.model, posterior.data, family=posterior.families[family], seed=0, progress=False)
        path.write_bytes(pickle.dumps(jax.tree.map(np.asarray, fit.params)))
    params = jax.tree.map(jax.numpy.asarray, pickle.loads(path.read_bytes()))
    approximation = approximate(posterior.families[family], posterior.model.latents)
    data = Dataset.from_arrays(posterior.data)
    ended = Status("budget", "as the benchmark left it")
    return isvi.Fit(posterior.model, approximation, data, params, History(), ended, gradients=1000, steps=1000)


def moved(fit: isvi.Fit, random: np.random.Generator) -> isvi.Fit:
    """q with its mean moved by up to an sd, and its sds by up to a factor of two; other parameters likewise."""
    shift, stretch = random.uniform(0, 1) ** 2, random.uniform(-0.7, 0.7)
    leaves, tree = jax.tree.flatten(fit.params)
    params = fit.params
    if hasattr(params, "loc"):
        draws = np.asarray(fit.approximation.draw(jax.random.key(0), params, 2000))
        draws = np.log(draws) if "LogNormal" in repr(fit.approximation.pieces) else draws
        params = params._replace(loc=params.loc + shift * random.choice([-1, 1], draws.shape[1]) * draws.std(axis=0))
        if hasattr(params, "log_scale"):
            params = params._replace(log_scale=params.log_scale + stretch)
        else:
            wider = np.array(params.factor) * np.exp(stretch)
            for block, old in zip(wider, np.asarray(params.factor), strict=True):
                np.fill_diagonal(block, np.diagonal(old) + stretch)
            params = params._replace(factor=wider.astype(np.float32))
    else:
        leaves = [leaf + 0.5 * shift * random.normal(size=np.shape(leaf)).astype(np.float32) for leaf in leaves]
        params = jax.tree.unflatten(tree, leaves)
    return replace(fit, params=params)


def judged(posterior: Posterior, family: str, fit: isvi.Fit, number: int) -> Case:
    started = time.process_time()
    told = fit.diagnose()
    seconds = time.process_time() - started
    resampled = fit.resample(RESAMPLED)
    again = {name: values.mean(axis=0) for name, values in resampled.items()}
    spread = {name: values.std(axis=0) for name, values in resampled.items()}
    return Case(
        posterior.kind,
        posterior.name,
        posterior.size,
        family,
        number,
        told.verdict,
        *errors(posterior, fit.mean(), fit.sd()),
        *errors(posterior, again, spread),
        told.k_hat,
        told.effective_draws,
        0 if told.motion is None else told.motion.chains,
        told.passes,
        seconds,
        told.reasons[-1],
    )


def run(pairs: list[tuple[Posterior, str]], folder: Path, done: int) -> Iterator[Case]:
    """In random order, so that a part of them says something too; the first ``done`` cases are there already."""
    folder.mkdir(parents=True, exist_ok=True)
    order = np.random.default_rng(0).permutation(len(pairs))
    for place in order[done // (1 + MOVES) :]:
        posterior, family = pairs[place]
        fit = fitted(posterior, family, folder)
        name = f"{posterior.kind}{posterior.name}{posterior.size}{family}"
        for number in range(done % (1 + MOVES), 1 + MOVES):
            random = np.random.default_rng([zlib.crc32(name.encode()), number])
            yield judged(posterior, family, moved(fit, random) if number else fit, number)
        done = 0


def write(cases: Iterable[Case], path: Path) -> None:
    """One by one, as they come, after those that are there."""
    begun = path.exists()
    with path.open("a", newline="", buffering=1) as file:
        writer = csv.writer(file)
        if not begun:
            writer.writerow([field.name for field in fields(Case)])
        for case in cases:
            values = [getattr(case, field.name) for field in fields(Case)]
            writer.writerow([f"{one:.4g}" if isinstance(one, float) else one for one in values])
            print(case, flush=True)


def read(path: Path) -> list[Case]:
    types = get_type_hints(Case)
    with path.open(newline="") as file:
        return [Case(**{name: types[name](text) for name, text in row.items()}) for row in csv.DictReader(file)]


COLUMNS = (
    "cases",
    "good",
    "of these wrong",
    "usable",
    "of these resampling wrong",
    "poor",
    "q is right",
    "of these usable",
    "of these poor",
)


def counted(cases: list[Case]) -> list[str]:
    """A row of the table."""
    good, usable, poor = ([case for case in cases if case.verdict == one] for one in ("good", "usable", "poor"))
    right = [case for case in cases if case.right]
    counts = [
        len(cases),
        len(good),
        sum(not case.right for case in good),
        len(usable),
        sum(not case.resampled_right for case in usable),
        len(poor),
        len(right),
        sum(case.verdict == "usable" for case in right),
        sum(case.verdict == "poor" for case in right),
    ]
    return [str(count) for count in counts]


def table(cases: list[Case], by: str) -> str:
    groups = sorted({getattr(case, by) for case in cases})
    rows = [[str(group), *counted([case for case in cases if getattr(case, by) == group])] for group in groups]
    lines = [[by, *COLUMNS], ["---", *["---:"] * len(COLUMNS)], *rows, ["**all**", *counted(cases)]]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def mistaken(case: Case) -> bool:
    if case.verdict == "good" or case.right:
        return (case.verdict == "good") != case.right
    return case.verdict == "usable" and not case.resampled_right


def report(cases: list[Case], others: list[Case], before: list[Case]) -> str:
    parts = ["# Is the verdict right?", __doc__.split(" Run with")[0].split("\n\n")[1]]
    parts += ["By kind of posterior:", table(cases, "kind"), "By family:", table(cases, "family")]
    parts += ["By the number of latents:", table(cases, "size"), "Every verdict that is wrong:", mistakes(cases)]
    if others:
        parts += ["## Other shapes", "Looked at after the verdict had been mended by those above."]
        parts += [table(others, "kind"), table(others, "family"), table(others, "size"), mistakes(others)]
    if before:
        parts += ["## An earlier version", "On the same fits as the first tables:", table(before, "kind")]
        parts += [mistakes(before)]
    return "\n\n".join(parts) + "\n"


def mistakes(cases: list[Case]) -> str:
    lines = [
        f"- {case.kind}, {case.posterior}, {case.size} latents, {case.family}: {case.verdict}; q's worst mean is off "
        f"by {case.mean_error:.2f} sds, its worst sd by a factor of {np.exp(case.sd_error):.2f}; resampled "
        f"{case.resampled_mean_error:.2f} and {np.exp(case.resampled_sd_error):.2f}"
        for case in filter(mistaken, cases)
    ]
    return "\n".join(lines or ["- none"])


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--fits", type=Path, default=Path("/tmp/verdict-fits"))
    parser.add_argument(
        "--every", type=int, default=1, help="use every n-th pair of posterior and family of the common kinds"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the posteriors")
    parser.add_argument("--kind", default="", help="of posterior; by default all")
    parser.add_argument("--aside", action="store_true", help="posteriors of the other shapes, not looked at before")
    parser.add_argument("--out", type=Path, default=RESULTS / "verdicts.csv")
    parser.add_argument("--before", type=Path, help="what an earlier version said")
    parser.add_argument("--report-only", action="store_true", help="write the tables of verdicts that are there")
    given = parser.parse_args()
    if not given.report_only:
        kinds = [one for one in (aside if given.aside else generated)(given.seed) if given.kind in one.kind]
        pairs = [(one, family) for one in kinds for family in one.families][:: given.every]
        done = len(read(given.out)) if given.out.exists() else 0
        write(run(pairs, given.fits, done), given.out)
    if given.out.parent == RESULTS:
        others = RESULTS / "verdicts_aside.csv"
        said = [
            read(path) if path and path.exists() else [] for path in (RESULTS / "verdicts.csv", others, given.before)
        ]
        (RESULTS / "verdicts.md").write_text(report(*said))
