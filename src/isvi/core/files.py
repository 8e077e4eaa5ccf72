"""Writing files so that a crash leaves the old one or the new one, never half of one."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO


@contextmanager
def written_atomically(path: Path) -> Iterator[IO[bytes]]:
    """A file to write to: beside its place, and renamed when it is complete and on the disk."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w+b") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def write_atomically(path: Path, contents: bytes) -> None:
    """Write beside the file, then rename."""
    with written_atomically(path) as file:
        file.write(contents)
