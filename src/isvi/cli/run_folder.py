"""What the command line adds to a run's folder: which files the run was made from."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

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
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(folder / FILE, json.dumps(asdict(self), indent=2).encode())

    @classmethod
    def read(cls, folder: Path) -> "Command":
        require(
            (folder / FILE).is_file(),
            CheckpointError,
            f"{folder} was not made by `isvi fit`: there is no {FILE} in it. Use isvi.resume or isvi.load from Python.",
        )
        try:
            return cls(**json.loads((folder / FILE).read_text()))
        except (ValueError, TypeError) as error:
            raise CheckpointError(f"{folder / FILE} is damaged: {error}.") from None

    def check_model(self, digest: str) -> None:
        require(
            digest == self.model_digest,
            CheckpointError,
            f"{self.model} has changed since the run was started. Bring the file back as it was, or start a new run.",
        )
