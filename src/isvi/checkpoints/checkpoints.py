"""Checkpoints: everything that going on needs, written in the background while a fit runs.

A run's folder holds ``run.json`` (which run it is: :mod:`isvi.checkpoints.identity`) and ``checkpoints/``, the latest
few, each written by orbax under another name and renamed when complete. They hold arrays and JSON, and no code. A
checkpoint also carries a digest of its arrays: one that was damaged since is passed over for the one before.
"""

import hashlib
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from isvi.core.errors import CheckpointError, ConfigurationError, require

if TYPE_CHECKING:
    from orbax.checkpoint import CheckpointManager

log = logging.getLogger("isvi")

Template = Callable[[dict[str, Any]], Any]
"""From a checkpoint's notes to a state of the shapes that it must have."""


@dataclass(frozen=True)
class Checkpoint:
    """Where and how often a fit is saved while it runs.

    Attributes:
        folder: a folder of its own for this run; made if it is not there.
        every: seconds between checkpoints.
        keep: how many of the latest are kept.
    """

    folder: str | Path
    every: float = 60.0
    keep: int = 3

    def __post_init__(self) -> None:
        require(
            self.every >= 0 and self.keep >= 1,
            ConfigurationError,
            f"Checkpoint needs every >= 0 (seconds) and keep >= 1; got every={self.every!r}, keep={self.keep!r}.",
        )


class Checkpoints:
    """Writes and reads the checkpoints of one run. A context: leaving it waits for what is being written."""

    def __init__(self, options: Checkpoint) -> None:
        self._options = options
        self._folder = (Path(options.folder) / "checkpoints").absolute()
        self._manager: CheckpointManager | None = None
        self._written = time.monotonic()

    def __enter__(self) -> "Checkpoints":
        return self

    def __exit__(self, *exception: object) -> None:
        if self._manager is not None:
            self._guarded(self._manager.wait_until_finished)
            self._close()

    @property
    def due(self) -> bool:
        return time.monotonic() - self._written >= self._options.every

    def save(self, state: Any, notes: dict[str, Any], wait: bool = False) -> None:
        """Copy the state, a pytree of arrays, and write it in the background, with notes that are JSON. What goes wrong
        there is told and does not end the fit."""
        leaves = [np.array(leaf) for leaf in _raw_leaves(state)]
        self._guarded(lambda: self._write(leaves, {"digest": _digest(leaves), **notes}))
        if wait:
            self._guarded(self._open().wait_until_finished)
        self._written = time.monotonic()

    def _write(self, leaves: list[np.ndarray], notes: dict[str, Any]) -> None:
        import orbax.checkpoint as orbax

        manager = self._open()
        manager.wait_until_finished()  # also raises what the last one met
        arrays = {f"{number:04d}": leaf for number, leaf in enumerate(leaves)}
        contents = orbax.args.Composite(state=orbax.args.StandardSave(arrays), notes=orbax.args.JsonSave(notes))
        latest = manager.latest_step()
        manager.save(0 if latest is None else latest + 1, args=contents, force=True)

    def restore(self, template: Template) -> tuple[Any, dict[str, Any]]:
        """State and notes of the latest checkpoint that can be read. ``template(notes)`` gives the shapes to expect."""
        manager = self._open()
        numbers = sorted(manager.all_steps(), reverse=True)
        for number in numbers:
            try:
                return self._read(number, template)
            except Exception as error:  # whatever a damaged file makes a reader raise
                log.warning(
                    "checkpoint %s in %s cannot be used (%s); trying the one before", number, self._folder, error
                )
        raise CheckpointError(
            f"no checkpoint in {self._folder} can be read ({len(numbers)} are there). Start again, with a new folder."
        )

    def _read(self, number: int, template: Template) -> tuple[Any, dict[str, Any]]:
        import orbax.checkpoint as orbax

        contents = self._open().restore(
            number, args=orbax.args.Composite(state=orbax.args.StandardRestore(), notes=orbax.args.JsonRestore())
        )
        notes, arrays = contents["notes"], contents["state"]
        leaves = [np.asarray(arrays[name]) for name in sorted(arrays)]
        require(_digest(leaves) == notes["digest"], CheckpointError, "its arrays are not those that were written")
        shapes, structure = jax.tree.flatten(template(notes))
        wrong = len(shapes) != len(leaves) or any(
            raw.shape != leaf.shape or raw.dtype != leaf.dtype
            for raw, leaf in zip(_raw_leaves(shapes), leaves, strict=True)
        )
        require(not wrong, CheckpointError, "its arrays have other shapes than this run's")
        return jax.tree.unflatten(structure, map(_as_template, leaves, shapes)), notes

    def _open(self) -> "CheckpointManager":
        if self._manager is None:
            import orbax.checkpoint as orbax

            self._folder.mkdir(parents=True, exist_ok=True)
            options = orbax.CheckpointManagerOptions(max_to_keep=self._options.keep)
            self._manager = orbax.CheckpointManager(self._folder, options=options)
        return self._manager

    def _close(self) -> None:
        manager, self._manager = self._manager, None
        if manager is not None:
            manager.close()

    def _guarded(self, action: Callable[[], None]) -> None:
        """A full disk must not end a fit that has been running all night."""
        try:
            action()
        except Exception as error:
            log.warning("could not write a checkpoint to %s (%s); the fit goes on", self._folder, error)
            self._manager = None  # what is left of this one is cleared away by the next


def _digest(leaves: list[np.ndarray]) -> str:
    digest = hashlib.sha256()
    for leaf in leaves:
        digest.update(f"{leaf.dtype}{leaf.shape}".encode())
        digest.update(np.ascontiguousarray(leaf).data)
    return digest.hexdigest()


def _raw_leaves(tree: Any) -> list[Any]:
    """Leaves that can be written: an optimizer that adds noise may hold a random key, which is numbers underneath."""
    return [jax.random.key_data(leaf) if _is_key(leaf) else leaf for leaf in jax.tree.leaves(tree)]


def _as_template(leaf: np.ndarray, template: Any) -> jax.Array:
    array = jax.numpy.asarray(leaf)
    return jax.random.wrap_key_data(array) if _is_key(template) else array


def _is_key(leaf: Any) -> bool:
    return jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)
