"""How far a run has come, and what it left behind."""

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from isvi.families.approximation import Approximation
from isvi.families.base import Params
from isvi.fitting.running.loop import LoopState
from isvi.results.attempts import Attempt
from isvi.results.history import History
from isvi.results.status import Status, some

if TYPE_CHECKING:
    from isvi.fitting.afterwards.bent import Bent

ENDLESS_SD = 1e15
"""No posterior of numbers that single precision can hold is as wide as this, in any direction."""


@dataclass
class Outcome:
    """The state of a run, with its history.

    Attributes:
        loop: the state, with the last good parameters.
        start: the parameters at the very beginning.
        fell_back_at: model gradients spent when the run started over with Adam; None if it did not.
        history: what happened, in rows.
        status: why it ended.
        seconds: seconds spent in steps.
        compile_seconds: seconds spent compiling.
        skipped: steps not taken because the model, or the update, was not finite.
        gave_up: whether the method found that it is the wrong one here.
        starts: where the starts led to, if there were several.
        nodes: how the integrals over local latents are taken, if not as at the start: how many nodes, and whether they
            are everywhere.
        looked: whether entries of which few rows know were looked at before the budget was used.
        error: what a model that is evaluated on the host raised, or a source of data, if it did.
        signal: the signal that stopped it, if one did.
        bent: what came of bending the Gaussian, if that was tried.
    """

    loop: LoopState
    start: Params
    fell_back_at: int | None = None
    history: History = field(default_factory=History)
    status: Status = Status("interrupted", "stopped before the first step")
    seconds: float = 0.0
    compile_seconds: float = 0.0
    skipped: int = 0
    gave_up: bool = False
    starts: list[Attempt] = field(default_factory=list)
    nodes: tuple[int, bool] | None = None
    looked: bool = False
    error: Exception | None = None
    signal: int | None = None
    bent: "Bent | None" = None

    @property
    def state(self) -> tuple[LoopState, Params]:
        """The arrays that going on needs."""
        return self.loop, self.start

    @property
    def settled(self) -> bool:
        """Whether the method that was chosen came to an end of its own."""
        return self.fell_back_at is None and self.error is None and self.status.kind in ("converged", "budget")

    @property
    def new(self) -> bool:
        """Whether no step was taken yet."""
        return int(self.loop.state.steps) == 0

    @property
    def gradients(self) -> int:
        return int(self.loop.state.gradients)

    def notes(self) -> dict[str, Any]:
        """What a checkpoint holds beside the arrays, as JSON."""
        kept = {
            name: getattr(self, name)
            for name in ("fell_back_at", "nodes", "looked", "seconds", "compile_seconds", "skipped")
        }
        return {**kept, "history": asdict(self.history), "starts": [one.as_json() for one in self.starts]}

    @classmethod
    def of(cls, state: tuple[LoopState, Params], notes: dict[str, Any]) -> "Outcome":
        """From a checkpoint."""
        return cls(
            *state,
            fell_back_at=None if notes["fell_back_at"] is None else int(notes["fell_back_at"]),
            nodes=None if notes["nodes"] is None else (int(notes["nodes"][0]), bool(notes["nodes"][1])),
            looked=bool(notes["looked"]),
            history=History.of(notes["history"]),
            seconds=float(notes["seconds"]),
            compile_seconds=float(notes["compile_seconds"]),
            skipped=int(notes["skipped"]),
            starts=[Attempt.from_json(one) for one in notes["starts"]],
        )


def endless(approximation: Approximation, params: Params) -> Status | None:
    """The status of a fit in which q grew without end: some latents' posterior cannot be normalised."""
    if not approximation.gaussian:
        return None
    widths = np.asarray(approximation.scale(params))
    grown = ~(widths < ENDLESS_SD)
    if not grown.any():
        return None
    return Status(
        "diverged",
        f"the posterior of {some(approximation.coordinates.labels(), grown)} has no end: the sd grew to "
        f"{widths.max():.1g}, and would go on growing. Neither the data nor the prior say where it is: give it a "
        "proper prior.",
    )
