"""Files of isvi's own: ZIP archives with one description in JSON, and arrays in NumPy's ``.npy`` format.

They may come from a stranger. Nothing is unpickled, only what is asked for is read, and nothing that would be larger
than its place in the archive makes plausible: an archive of megabytes may expand to terabytes.
"""

import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from isvi.core.errors import CheckpointError, require
from isvi.core.files import written_atomically

LARGEST_DESCRIPTION = 64_000_000
"""Bytes of the JSON: a hundred rows of history, and a hundred bytes for each of half a million latents."""
HARMLESS = 256_000_000
"""Bytes that a member may always expand to."""
LARGEST_RATIO = 30
"""How much smaller than its contents a larger member may be. Parameters and draws are floating-point numbers, which
compress to half; triangles with zeros, and draws that are all equal in most places, to a tenth."""
UNPACKED = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


def write_archive(
    path: Path, description: tuple[str, Mapping[str, Any]], arrays: Mapping[str, np.ndarray], compress: bool
) -> None:
    """Write a description (name of the member, JSON) and arrays; complete, or not at all."""
    method = zipfile.ZIP_DEFLATED if compress else zipfile.ZIP_STORED
    with written_atomically(path) as file, zipfile.ZipFile(file, "w", method) as members:
        members.writestr(description[0], json.dumps(description[1], indent=2))
        for name, array in arrays.items():
            with members.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)


class Archive:
    """Reads an archive, member by member. A context."""

    def __init__(self, path: Path) -> None:
        self._archive = zipfile.ZipFile(path)

    def __enter__(self) -> "Archive":
        return self

    def __exit__(self, *exception: object) -> None:
        self._archive.close()

    def described(self, name: str) -> dict[str, Any]:
        """The description, which is a JSON object."""
        member = self._member(name)
        require(
            member.file_size <= LARGEST_DESCRIPTION,
            CheckpointError,
            f"{name} has {member.file_size:,} bytes; at most {LARGEST_DESCRIPTION:,} are read",
        )
        found = json.loads(self._archive.read(member))
        require(isinstance(found, dict), CheckpointError, f"{name} holds {type(found).__name__} instead of an object")
        return found

    def names(self, prefix: str = "") -> list[str]:
        """Of the arrays, without the prefix."""
        found = self._archive.namelist()
        return [name[len(prefix) : -4] for name in found if name.startswith(prefix) and name.endswith(".npy")]

    def num_bytes(self, prefix: str) -> int:
        """Of the members whose names begin so."""
        return sum(one.file_size for one in self._archive.infolist() if one.filename.startswith(prefix))

    def array(self, name: str, shape: tuple[int, ...] | None = None) -> np.ndarray:
        """An array of real numbers, of this shape. The shape in its header is compared before anything is read."""
        member = self._member(f"{name}.npy")
        with self._archive.open(member) as file:
            major = np.lib.format.read_magic(file)[0]
            read = np.lib.format.read_array_header_1_0 if major == 1 else np.lib.format.read_array_header_2_0
            found, fortran, dtype = read(file)
            require(dtype.kind in "fiub", CheckpointError, f"{name} holds {dtype} instead of real numbers")
            require(shape is None or found == shape, CheckpointError, f"{name} has shape {found} instead of {shape}")
            size = int(np.prod([*found, dtype.itemsize], dtype=object))
            require(
                0 <= size <= member.file_size,
                CheckpointError,
                f"{name} has shape {found}, but only {member.file_size:,} bytes",
            )
            contents = file.read(size)
        require(len(contents) == size, CheckpointError, f"{name} ends too early")
        array = np.frombuffer(bytearray(contents), dtype)
        return array.reshape(found, order="F" if fortran else "C")

    def _member(self, name: str) -> zipfile.ZipInfo:
        try:
            member = self._archive.getinfo(name)
        except KeyError:
            raise CheckpointError(f"{name} is missing") from None
        plausible = max(HARMLESS, LARGEST_RATIO * member.compress_size)
        require(
            member.compress_type in UNPACKED and member.file_size <= plausible,
            CheckpointError,
            f"{name} would expand from {member.compress_size:,} to {member.file_size:,} bytes, as no file of isvi does",
        )
        return member
