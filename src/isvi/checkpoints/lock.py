"""One process at a time in a run's folder."""

import logging
import os
import socket
from contextlib import suppress
from contextvars import ContextVar
from pathlib import Path
from typing import IO, Self

from isvi.core.errors import CheckpointError

try:
    import fcntl
except ImportError:  # where the system has no such locks, nothing is locked
    fcntl = None  # type: ignore[assignment]

log = logging.getLogger("isvi")

FILE = "run.lock"
_held: ContextVar[frozenset[Path]] = ContextVar("folders whose lock this call holds further up", default=frozenset())


class RunLock:
    """Holds a run's folder, which is made if it is not there, while it is entered. A context.

    The lock is the system's own (``flock``), on a file in the folder: it ends with the process, however that ends.
    Whoever holds it may enter it again further down, as ``isvi fit`` and ``isvi.fit`` do.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()
        self._file: IO[str] | None = None

    def __enter__(self) -> Self:
        outer = _held.get()
        if self.folder not in outer:
            try:
                self.folder.mkdir(parents=True, exist_ok=True)
                self._file = (self.folder / FILE).open("a+")
            except OSError as error:
                raise cannot_write(self.folder, error) from None
            self._take(self._file)
        self._outer = _held.set(outer | {self.folder})
        return self

    def __exit__(self, *exception: object) -> None:
        _held.reset(self._outer)
        if self._file is not None:
            self._file.close()

    @property
    def in_place(self) -> bool:
        """Whether the folder is still the one that was locked: somebody may have removed it, or put another there."""
        if self._file is None:
            return self.folder.is_dir()  # who holds it further up knows more
        try:
            there, mine = (self.folder / FILE).stat(), os.fstat(self._file.fileno())
        except OSError:
            return False
        return (there.st_dev, there.st_ino) == (mine.st_dev, mine.st_ino)

    def _take(self, file: IO[str]) -> None:
        if fcntl is None:
            return
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            who = file.read(200).strip() or "another process"
            file.close()
            raise CheckpointError(
                f"{self.folder} is in use: {who} is writing a run there. Wait until it has ended, or choose another "
                "folder."
            ) from None
        except OSError as error:
            log.warning("%s cannot be locked (%s): let no other process write there", self.folder, error)
            return
        with suppress(OSError):  # a full disk: the lock holds all the same
            file.truncate(0)
            file.write(f"process {os.getpid()} on {socket.gethostname()}")
            file.flush()


def cannot_write(folder: Path, error: Exception) -> CheckpointError:
    """For a disk that is full or a folder that cannot be written to, at the beginning of a run."""
    return CheckpointError(
        f"no run can be kept in {folder}: {error}. Make room, or choose a folder that can be written to."
    )
