"""Writing files so that a crash leaves the old one or the new one, never half of one."""

import os
import tempfile
from pathlib import Path


def write_atomically(path: Path, contents: bytes) -> None:
    """Write beside the file, then rename."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(contents)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
