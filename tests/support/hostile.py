"""Files as a stranger, a bad disk or an editor may leave them."""

import copy
import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 3, 10**6, 10**12, 10**30, 0.5, float("nan"), float("inf"), -1e300),
    *("", "x", "real", "\x1b[31mred", "[bold]", "../../etc", "é" * 50, "MeanField"),
    *([], [1], [0], [-1], [10**9, 10**9], ["a"], [[1, 2], [3]], {}, {"kind": "Auto"}, {"a": 1}, {"unknown kind": 7}),
)


def mutated(found: Any, generator: np.random.Generator) -> Any:
    """JSON with one to three places changed: a value replaced, removed, doubled or moved under another name."""
    result = copy.deepcopy(found)
    for _ in range(generator.integers(1, 4)):
        inside = [node for node in _nodes(result) if node]
        if not inside:
            return result
        node = inside[generator.integers(len(inside))]
        place: Any = (
            list(node)[generator.integers(len(node))] if isinstance(node, dict) else generator.integers(len(node))
        )
        what = generator.integers(4)
        if what == 0:
            node.pop(place)
        elif what == 1 and isinstance(node, dict):
            node[str(VALUES[generator.integers(len(VALUES))])] = node.pop(place)
        elif what == 1:
            node.append(node[place])
        else:
            node[place] = copy.deepcopy(VALUES[generator.integers(len(VALUES))])
    return result


def _nodes(found: Any) -> list[Any]:
    """All objects and lists, from the outermost on."""
    if not isinstance(found, (dict, list)):
        return []
    return [found, *(node for one in (found.values() if isinstance(found, dict) else found) for node in _nodes(one))]


def damaged(contents: bytes, generator: np.random.Generator) -> bytes:
    """Bytes flipped, cut off, doubled, or set to 0."""
    changed = bytearray(contents)
    for _ in range(generator.integers(1, 4)):
        if not changed:
            break
        start = int(generator.integers(len(changed)))
        stop = min(len(changed), start + int(generator.integers(1, 40)))
        what = generator.integers(4)
        if what == 0:
            changed[start] ^= int(generator.integers(1, 256))
        elif what == 1:
            del changed[start:]
        elif what == 2:
            changed[start:start] = changed[start:stop]
        else:
            changed[start:stop] = bytes(stop - start)
    return bytes(changed)


def members(path: Path) -> dict[str, bytes]:
    """Of a ZIP archive."""
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def write_members(path: Path, contents: dict[str, bytes]) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in contents.items():
            archive.writestr(name, content)


def with_json(path: Path, name: str, change: Any) -> None:
    """Change the JSON of one member of an archive."""
    contents = members(path)
    contents[name] = json.dumps(change(json.loads(contents[name]))).encode()
    write_members(path, contents)
