"""What the command line adds to a run's folder: which files the run was made from."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from isvi.checkpoints.lock import cannot_write
from isvi.core.errors import CheckpointError, require
from isvi.core.files import write_atomically

FILE = "command.json"


@dataclass(frozen=True)
class Command:
    """The files and folders of ``isvi fit``, as absolute paths, and the digest of the model file when it was run."""

    model: str
    model_digest: str
    data: str | None
    cache: str | None = None

    def write(self, folder: Path) -> None:
        try:
            write_atomically(folder / FILE, json.dumps(asdict(self), indent=2).encode())
        except OSError as error:
            raise cannot_write(folder, error) from None

    @classmethod
    def read(cls, folder: Path) -> "Command":
        require(
            (folder / FILE).is_file(),
            CheckpointError,
            f"{folder} was not made by `isvi fit`: there is no {FILE} in it. Use isvi.resume or isvi.load from Python.",
        )
        try:
            command = cls(**json.loads((folder / FILE).read_text()))
        except (ValueError, TypeError, OSError, RecursionError) as error:
            raise CheckpointError(f"{folder / FILE} is damaged: {error}.") from None
        texts = (command.model, command.model_digest, command.data or "", command.cache or "")
        require(
            all(isinstance(text, str) and "\0" not in text for text in texts),
            CheckpointError,
            f"{folder / FILE} is damaged: it must name files.",
        )
        return command

    def check_model(self, digest: str) -> None:
        require(
            digest == self.model_digest,
            CheckpointError,
            f"{self.model} has changed since the run was started. Bring the file back as it was, or start a new run.",
        )
