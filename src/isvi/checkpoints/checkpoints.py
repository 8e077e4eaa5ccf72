"""Checkpoints: everything that going on needs, written in the background while a fit runs.

A run's folder holds ``run.json`` (which run it is: :mod:`isvi.checkpoints.identity`) and ``checkpoints/``, the latest
few, each a file (:mod:`isvi.core.archives`) that is written under another name and renamed when complete. They hold
arrays and JSON, and no code. A checkpoint also carries a digest of both: one that was damaged since is passed over for
the one before.
"""

import logging
import re
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self, TypeVar

import jax
import numpy as np

from isvi.checkpoints.leaves import as_before, digest_of, raw_leaves
from isvi.checkpoints.lock import RunLock, cannot_write
from isvi.core.archives import Archive, write_archive
from isvi.core.errors import CheckpointError, ConfigurationError, require

log = logging.getLogger("isvi")

Template = Callable[[dict[str, Any]], Any]
"""From a checkpoint's notes to a state of the shapes that it must have."""
Result = TypeVar("Result")
REPLACED = "the folder was removed or replaced meanwhile"
NAME = re.compile(r"\d{8}")


@dataclass(frozen=True)
class Checkpoint:
    """Where and how often a fit is saved while it runs.

    Attributes:
        folder: a folder of its own for this run; made if it is not there.
        every: seconds between checkpoints.
        keep: how many of the latest are kept.
        sigterm: what follows when SIGTERM has stopped the fit, and all was saved: ``"end"`` ends the process by that
            signal, as it would have without isvi; ``"return"`` returns what there is.
    """

    folder: str | Path
    every: float = 60.0
    keep: int = 3
    sigterm: Literal["end", "return"] = "end"

    def __post_init__(self) -> None:
        require(
            self.every >= 0 and self.keep >= 1,
            ConfigurationError,
            f"Checkpoint needs every >= 0 (seconds) and keep >= 1; got every={self.every!r}, keep={self.keep!r}.",
        )
        require(
            self.sigterm in ("end", "return"),
            ConfigurationError,
            f"Checkpoint(sigterm=...) is 'end' or 'return'; got {self.sigterm!r}.",
        )


class Checkpoints:
    """Writes and reads the checkpoints of one run, whose folder it holds. A context: leaving it waits for what is being
    written.

    Args:
        options: where and how often.
        also: further notes for every checkpoint, as JSON.
    """

    def __init__(self, options: Checkpoint, also: Callable[[], dict[str, Any]] = dict) -> None:
        self.options, self._also = options, also
        self.run_folder = Path(options.folder)
        self._folder = (self.run_folder / "checkpoints").absolute()
        self._lock = RunLock(self.run_folder)
        self._writer = ThreadPoolExecutor(1, "isvi-checkpoints")
        self._writing: Future[None] | None = None
        self._written = time.monotonic()
        self._told: set[str] = set()

    def __enter__(self) -> Self:
        self._lock.__enter__()
        for left in self._folder.glob(".*"):  # by a process that was killed while it wrote
            with suppress(OSError):
                left.unlink()
        return self

    def __exit__(self, *exception: object) -> None:
        self._finish()
        self._writer.shutdown()
        self._lock.__exit__(*exception)

    @property
    def due(self) -> bool:
        return time.monotonic() - self._written >= self.options.every

    def begin(self, state: Any, notes: dict[str, Any]) -> None:
        """The first checkpoint: one that cannot be written ends the fit before it has begun."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._write(*self._contents(state, notes))
        except OSError as error:
            raise cannot_write(self.run_folder, error) from None

    def save(self, state: Any, notes: dict[str, Any], wait: bool = False) -> None:
        """Copy the state, a pytree of arrays, and write it in the background, with notes that are JSON. What goes wrong
        there is told and does not end the fit."""
        self._finish()
        self._writing = self._writer.submit(self._write, *self._contents(state, notes))
        if wait:
            self._finish()
        self._written = time.monotonic()

    def guarded(self, action: Callable[[], object], what: str) -> None:
        """Write something to the run's folder. A full disk must not end a fit that has been running all night."""
        try:
            require(self._lock.in_place, CheckpointError, REPLACED)
            action()
        except Exception as error:
            said = f"could not write {what} to {self.run_folder} ({error}); the fit goes on"
            if said not in self._told:
                log.warning("%s", said)
            self._told.add(said)

    def restore(self, template: Template, build: Callable[[Any, dict[str, Any]], Result]) -> Result:
        """What ``build(state, notes)`` makes of the latest checkpoint that can be read. ``template(notes)`` gives the
        shapes to expect."""
        numbers = sorted(self._numbers(), reverse=True)
        for number in numbers:
            try:
                return build(*self._read(number, template))
            except Exception as error:  # whatever a damaged file makes a reader raise
                log.warning(
                    "checkpoint %s in %s cannot be used (%s); trying the one before", number, self._folder, error
                )
        raise CheckpointError(
            f"no checkpoint in {self._folder} can be read ({len(numbers)} are there). Start again, with a new folder."
        )

    def _contents(self, state: Any, notes: dict[str, Any]) -> tuple[list[np.ndarray], dict[str, Any]]:
        return raw_leaves(state), {**notes, **self._also()}

    def _write(self, leaves: list[np.ndarray], notes: dict[str, Any]) -> None:
        require(self._lock.in_place, CheckpointError, REPLACED)
        numbers = sorted(self._numbers())
        arrays = {f"{number:04d}": leaf for number, leaf in enumerate(leaves)}
        described = {"digest": digest_of(leaves, notes), "notes": notes}
        write_archive(self._path(max(numbers, default=-1) + 1), ("checkpoint.json", described), arrays, compress=False)
        for number in numbers[: max(0, len(numbers) + 1 - self.options.keep)]:
            self._path(number).unlink(missing_ok=True)

    def _finish(self) -> None:
        """Wait for what is being written, and tell what went wrong."""
        writing, self._writing = self._writing, None
        if writing is not None:
            self.guarded(writing.result, "a checkpoint")

    def _read(self, number: int, template: Template) -> tuple[Any, dict[str, Any]]:
        with Archive(self._path(number)) as archive:
            described = archive.described("checkpoint.json")
            leaves = [archive.array(name) for name in sorted(archive.names())]
        notes = described["notes"]
        require(isinstance(notes, dict), CheckpointError, "its notes are not an object")
        require(
            digest_of(leaves, notes) == described["digest"],
            CheckpointError,
            "its contents are not those that were written",
        )
        shapes, structure = jax.tree.flatten(template(notes))
        wrong = len(shapes) != len(leaves) or any(
            raw.shape != leaf.shape or raw.dtype != leaf.dtype
            for raw, leaf in zip(raw_leaves(shapes), leaves, strict=True)
        )
        require(not wrong, CheckpointError, "its arrays have other shapes than this run's")
        return jax.tree.unflatten(structure, map(as_before, leaves, shapes)), notes

    def _numbers(self) -> list[int]:
        return [int(path.name) for path in self._folder.glob("*") if NAME.fullmatch(path.name)]

    def _path(self, number: int) -> Path:
        return self._folder / f"{number:08d}"
