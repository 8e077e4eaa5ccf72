"""Results on disk: one row per checkpoint, added when a run is finished, so that a benchmark can be continued."""

import csv
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.measure import Point, Run, Setting, Time
from benchmarks.problem import Judged, Problem

RUN_COLUMNS = [
    "problem", "rival", "seed", "setting", "status", "latents", "batches", "budget", "optimum", "compile_seconds",
    "compile_cpu_seconds", "gradients", "seconds", "cpu_seconds", *Judged._fields,
]  # fmt: skip
TUNING_COLUMNS = ["problem", "rival", "budget", "rate", "horizon", "scale", "gap_per_latent", "reached_at"]


@dataclass
class Stored:
    """A run as read back."""

    problem: str
    rival: str
    seed: int
    setting: str
    status: str
    latents: int
    batches: int
    budget: int
    optimum: float
    compilation: Time
    points: list[Point] = field(default_factory=list)

    def gaps(self) -> list[float]:
        """Nats per latent to the optimum."""
        return [(self.optimum - point.judged.elbo) / self.latents for point in self.points]

    def reached(self, gap: float) -> Point | None:
        """The first checkpoint from which on the run stays within ``gap`` nats per latent of the optimum."""
        found = None
        for point, here in zip(reversed(self.points), reversed(self.gaps()), strict=True):
            if not here <= gap:
                break
            found = point
        return found


@dataclass(frozen=True)
class Store:
    """A folder with ``peers.csv`` and ``tuning.csv``."""

    folder: Path

    @property
    def runs_path(self) -> Path:
        return self.folder / "peers.csv"

    @property
    def tuning_path(self) -> Path:
        return self.folder / "tuning.csv"

    def add(self, problem: Problem, rival: str, seed: int, budget: int, run: Run) -> None:
        head = [problem.letter, rival, seed, run.setting, run.status, problem.latents, problem.num_batches, budget]
        head += [repr(problem.optimum[1]), *(f"{seconds:.3f}" for seconds in run.compilation)]
        rows = [
            [*head, point.gradients, *(f"{seconds:.4f}" for seconds in point.time), f"{point.judged.elbo:.6f}"]
            + [f"{error:.4g}" for error in point.judged[1:]]
            for point in run.points
        ]
        _append(self.runs_path, RUN_COLUMNS, rows)

    def runs(self) -> list[Stored]:
        found: dict[tuple[str, str, int], Stored] = {}
        for row in _read(self.runs_path):
            key = (row["problem"], row["rival"], int(row["seed"]))
            if key not in found:
                numbers = (int(row[name]) for name in ("latents", "batches", "budget"))
                seconds = Time(float(row["compile_seconds"]), float(row["compile_cpu_seconds"]))
                found[key] = Stored(*key, row["setting"], row["status"], *numbers, float(row["optimum"]), seconds)
            spent = Time(float(row["seconds"]), float(row["cpu_seconds"]))
            judged = Judged(*(float(row[name]) for name in Judged._fields))
            found[key].points.append(Point(int(row["gradients"]), spent, judged))
        return list(found.values())

    def forget(self, problems: Iterable[str], rivals: Iterable[str]) -> None:
        """Drop the runs of these rivals on these problems."""
        rows, problems, rivals = _read(self.runs_path), set(problems), set(rivals)
        kept = [row for row in rows if row["problem"] not in problems or row["rival"] not in rivals]
        self.runs_path.unlink(missing_ok=True)
        _append(self.runs_path, RUN_COLUMNS, [list(row.values()) for row in kept])

    def has(self, problem: str, rival: str, seed: int) -> bool:
        return any((run.problem, run.rival, run.seed) == (problem, rival, seed) for run in self.runs())

    def add_tuning(
        self, problem: str, rival: str, budget: int, outcomes: Iterable[tuple[Setting, float, float]]
    ) -> None:
        rows = [[problem, rival, budget, *s, f"{gap:.6g}", reached] for s, gap, reached in outcomes]
        _append(self.tuning_path, TUNING_COLUMNS, rows)

    def tuning(self) -> dict[tuple[str, str], list[dict[str, str]]]:
        found: dict[tuple[str, str], list[dict[str, str]]] = defaultdict(list)
        for row in _read(self.tuning_path):
            found[row["problem"], row["rival"]].append(row)
        return found


def _read(path: Path) -> list[dict[str, str]]:
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def _append(path: Path, columns: list[str], rows: list[list]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    new = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerows(([columns] if new else []) + rows)
