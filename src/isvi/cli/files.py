"""The model and the data of a run that ``isvi fit`` made."""

from pathlib import Path
from typing import Any

from isvi.cli.data_file import open_data_file
from isvi.cli.model_file import load_model_file
from isvi.cli.run_folder import Command


def opened(
    folder: Path, model: Path | None = None, data: Path | None = None, cache: Path | None = None
) -> tuple[Any, Any]:
    """The model and the data, from where they were or where they are now.

    This runs the model file that the folder names. It is refused if it is not the file that it was.
    """
    command = Command.read(folder)
    loaded = load_model_file(Path(command.model) if model is None else model)
    command.check_model(loaded.digest)
    where = data or (None if command.data is None else Path(command.data))
    kept = cache or (None if command.cache is None else Path(command.cache))
    return loaded.model, None if where is None else open_data_file(where, loaded.columns, kept)
