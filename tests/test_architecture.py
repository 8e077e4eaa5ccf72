"""Imports point downward only, so that each layer can be read without those above it."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "src" / "isvi"
LAYERS = (
    ("core",),
    ("data",),
    ("model",),
    ("families", "frontends"),
    ("memory",),
    ("estimators",),
    ("optim",),
    ("algorithms",),
    ("auto",),
    ("results",),
    ("diagnosis", "checkpoints", "exchange"),
    ("workers",),
    ("fitting",),
    ("calibration",),
    ("plots",),
    ("report",),
    ("cli", "datasets"),
)
RANKS = {name: rank for rank, layer in enumerate(LAYERS) for name in layer}
FRONTENDS_MAY_IMPORT = {"core", "data", "model", "frontends"}
CONVENIENCES = {("results", room) for room in ("diagnosis", "exchange", "plots", "report")}
"""Methods of a Fit that judge, hand on or show it: imported inside the method only, and only when it is called."""
MODULES = sorted(path for path in PACKAGE.rglob("*.py") if path.parent != PACKAGE or path.name != "__init__.py")


def package_of(module: str) -> str:
    """``isvi.core.errors`` belongs to ``core``."""
    return module.split(".")[1]


def imports(path: Path) -> Iterator[tuple[str, bool]]:
    """Packages of isvi that a file imports, and whether it does so inside a function, or for the type checker only."""
    tree = ast.parse(path.read_text())
    late = {
        id(node)
        for block in ast.walk(tree)
        if isinstance(block, ast.FunctionDef) or (isinstance(block, ast.If) and "TYPE_CHECKING" in ast.dump(block.test))
        for node in ast.walk(block)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: write imports in full"
            names = [node.module or ""]
            if node.module == "isvi":
                names = [f"isvi.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        for name in names:
            if name.startswith("isvi."):
                yield package_of(name), id(node) in late


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_downward(path):
    here = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    assert here in RANKS, f"{here} has no layer: give it one in LAYERS"
    for imported, late in imports(path):
        if RANKS[here] == max(RANKS.values()):
            continue  # what a person sees may import everything, isvi's own names included
        assert imported in RANKS, f"{path.name} imports isvi.{imported}, which has no layer"
        if late and (here, imported) in CONVENIENCES:
            continue
        below = RANKS[imported] < RANKS[here] or imported == here
        assert below, f"{path.name} in {here} imports {imported}, which lies above it or beside it"
        if here == "frontends":
            assert imported in FRONTENDS_MAY_IMPORT, f"frontends/{path.name} imports {imported}"


def test_the_check_sees_imports():
    """It is not vacuous."""
    seen = {imported for path in MODULES for imported, _ in imports(path)}
    assert {"core", "data", "model", "families", "memory", "estimators", "algorithms", "auto", "results"} <= seen


MOST_FILES = 15
"""In a room, its ``__init__.py`` not counted: beyond, it has more than one subject."""


@pytest.mark.parametrize(
    "room",
    sorted(path.parent for path in PACKAGE.rglob("__init__.py") if path.parent != PACKAGE),
    ids=lambda room: str(room.relative_to(PACKAGE)),
)
def test_rooms_have_one_subject_each_and_say_which(room):
    files = [path for path in room.glob("*.py") if path.name != "__init__.py"]
    assert len(files) <= MOST_FILES, f"{room.name} has {len(files)} files: which of them have a subject of their own?"
    assert ast.get_docstring(ast.parse((room / "__init__.py").read_text())), f"{room.name} does not say what it holds"
