"""Claims and their verdicts, tables of numbers, and RESULTS.md."""

import csv
import math
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

Verdict = Literal["holds", "holds in part", "does not hold"]
Size = Literal["toy", "reduced", "full"]


@dataclass(frozen=True)
class Claim:
    """One empirical statement of the paper, judged."""

    figure: str
    claim: str
    paper: str
    measured: str
    verdict: Verdict
    why: str = ""


def judge(value: float, holds: float, in_part: float) -> Verdict:
    """By thresholds on a number that is better when larger."""
    if math.isnan(value):
        return "does not hold"
    return "holds" if value >= holds else "holds in part" if value >= in_part else "does not hold"


def judge_all(verdicts: Sequence[Verdict]) -> Verdict:
    """A claim about several cases holds if it holds in all of them."""
    if all(verdict == "holds" for verdict in verdicts):
        return "holds"
    return "does not hold" if all(verdict == "does not hold" for verdict in verdicts) else "holds in part"


def write_table(out: Path, name: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Numbers as CSV, floats to six significant digits."""
    out.mkdir(parents=True, exist_ok=True)
    with (out / f"{name}.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        for row in rows:
            writer.writerow({key: f"{v:.6g}" if isinstance(v, float) else v for key, v in row.items()})


def read_table(out: Path, name: str) -> list[dict[str, str]]:
    path = out / f"{name}.csv"
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def write_claims(out: Path, figure: str, claims: Sequence[Claim]) -> None:
    write_table(out, f"{figure}_claims", [asdict(claim) for claim in claims])


def read_claims(out: Path) -> list[Claim]:
    """Of all figures that have been run into this directory."""
    names = sorted(path.stem for path in out.glob("figure*_claims.csv"))
    return [Claim(**row) for name in names for row in read_table(out, name)]  # type: ignore[arg-type]


HOW_MEASURED = """\
Written by `python -m reproduce{flag}`. Machine: {machine}. Float32 for gradients, float64 for ELBOs.

**How to read it.** A *gap* is the distance of the ELBO to the best value that the approximating family can reach, in
nats per latent (one entry of the unconstrained vector). The best value is computed by L-BFGS on the exact ELBO; only
for the mixture, which has many optima, it is the best ELBO of all runs. Costs are *model gradients* (of one
mini-batch, at one draw; for the score function, log joints) and *CPU seconds*: the steps that were counted, times the
CPU time of a fresh and of a reuse step measured in the compiled loop, without compilation and without evaluating the
ELBO. (CPU seconds, because the machine had other work to do, which makes its wall clock useless.) Numbers are the
median over {seeds}, with the range in brackets. Starts, mini-batch orders and draws differ between seeds, the data do
not.

Every comparison of speed is made twice. *One rate*: the setting (Adam's rate and its decay) that is best for SGD,
forced on I-SGD, as in the paper. *Both tuned*: each method at its own best setting of the same grid. "Best" is the
fewest model gradients to the gap in question in a sweep on one seed; if no setting gets there, the highest ELBO at
the end. *Authors' setting* is that of their released notebooks, for both methods. Grids and runs are in the CSV
files. A speed-up "> 3x" means that SGD had not arrived when its budget, three times I-SGD's need, was used up;
"neither", that no method arrived within its budget.
"""


EXPLANATIONS = "These are our explanations. Where no number is given with one, it was not tested separately."

DIFFERENCES = """\
## What differs from the paper

- The likelihood of (a) is written with the mini-batch's sums, which is the cheapest way to evaluate it: times saved
  are not exaggerated.
- (c) has a Gamma(1, 1) prior on the precisions instead of the authors' Gamma(1e-5, 1e-5), under which the
  ELBOs of a first run became infinite.
- (d), (e) and (f) converge with 200 rows (five weights) only, so the ELBO curves are of that size; the prices of
  steps are given for 50,000 rows too.
- I-SGD's budget in model gradients is half of SGD's in Figure 4; where it did not arrive and SGD did, the table says
  so.
- Figure 6 is on a diagonal Gaussian of 10,000 rows and 100 dimensions, and counts weights on problems of 10,000 rows.
- Tuning is on one seed and a grid of four rates times four decays (twelve settings in Figures 2 and 5).
- (b) has three seeds instead of five and a grid of four settings: its runs are the longest (time on the machine).
"""


def write_results(out: Path, size: Size, seeds: str) -> None:
    """RESULTS.md, from the claims of all figures in the directory."""
    claims = read_claims(out)
    machine = f"{os.cpu_count()} cores ({platform.machine()}), shared"
    flag = " --full" if size == "full" else ""
    lines = ["# The paper's claims, measured again", ""]
    if size != "full":
        lines += [f"*This is a run of {size} size: its verdicts are not those of the paper's sizes.*", ""]
    lines += [HOW_MEASURED.format(flag=flag, machine=machine, seeds=seeds), "## Verdicts", ""]
    lines += ["| figure | claim | the paper | measured here | verdict |", "| --- | --- | --- | --- | --- |"]
    for claim in claims:
        cells = [claim.figure, claim.claim, claim.paper, claim.measured, f"**{claim.verdict}**"]
        lines.append("| " + " | ".join(cell.replace("|", "/") for cell in cells) + " |")
    lines += ["", "## Why", "", EXPLANATIONS, ""]
    lines += [f"- **{c.claim}** (Figure {c.figure}; {c.verdict}). {c.why}" for c in claims if c.why]
    lines += ["", DIFFERENCES, "## Figures and numbers", ""]
    for picture in sorted(out.glob("figure*.png")):
        lines += [f"![{picture.stem}]({picture.name})", ""]
        tables = sorted(path.name for path in out.glob(f"{picture.stem.split('_')[0]}*.csv"))
        lines += ["Numbers: " + ", ".join(f"[{name}]({name})" for name in tables) + ".", ""]
    (out / "RESULTS.md").write_text("\n".join(lines))
