"""The gallery: every page runs. At a reduced size always, and as it is written, with what it prints, if it is slow.

A page says its sizes in lines such as ``num_rows = 20_000  # in the tests: 1_000``. ``python tests/test_gallery.py PAGE
...`` runs pages at full size, and writes what they print and draw.
"""

import re
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import jax
import pytest
from test_readme import assert_printed, run_blocks, update

GALLERY = Path(__file__).parents[1] / "docs" / "gallery"
PAGES = sorted(path.stem for path in GALLERY.glob("*.md") if path.stem != "index")
LONG = {"gaussian-process", "item-response", "day-by-day", "ordinal"}
"""Pages that take longer than others even at a reduced size."""
NEEDS = {"pymc": "pymc", "stan": "httpstan"}
SIZE = re.compile(r"^(\w+ = )[\d_]+  # in the tests: ([\d_]+)$", re.MULTILINE)


@pytest.fixture(autouse=True)
def _pictures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Pictures are drawn without a screen, and land in a folder that goes away; settings of JAX are put back."""
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    monkeypatch.chdir(tmp_path)
    double = bool(jax.config.jax_enable_x64)
    yield
    jax.config.update("jax_enable_x64", double)
    matplotlib.pyplot.close("all")


def skip_without_package(page: str) -> None:
    if page in NEEDS and find_spec(NEEDS[page]) is None:
        pytest.skip(f"{NEEDS[page]} is not installed: pip install 'isvi[{page}]'")


@pytest.mark.parametrize(
    "page", [pytest.param(page, marks=pytest.mark.slow) if page in LONG else page for page in PAGES]
)
def test_pages_run_at_a_reduced_size(page: str, tmp_path: Path) -> None:
    skip_without_package(page)
    text, sizes = SIZE.subn(r"\g<1>\g<2>", (GALLERY / f"{page}.md").read_text())
    assert sizes, "say a size for the tests: num_rows = 20_000  # in the tests: 1_000"
    for _ in run_blocks(GALLERY / f"{page}.md", text):
        pass
    assert (tmp_path / f"{page}.png").exists()


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_pages_print_what_is_written(page: str) -> None:
    skip_without_package(page)
    for block, printed in run_blocks(GALLERY / f"{page}.md"):
        if block["output"] is not None:
            assert_printed(printed, block["output"])


@pytest.mark.parametrize("page", PAGES)
def test_pages_have_a_picture_and_end_with_a_diagnosis(page: str) -> None:
    text = (GALLERY / f"{page}.md").read_text()
    assert (GALLERY / "images" / f"{page}.png").exists()
    assert f"](images/{page}.png)" in text
    _, last = text.split("## Is it right?")
    assert "fit.diagnose(" in last
    assert re.search(r"\bpoor\b", last)
    assert f"({page}.md)" in (GALLERY / "index.md").read_text()


if __name__ == "__main__":
    import os

    import matplotlib

    matplotlib.use("Agg")
    os.chdir(GALLERY / "images")
    for page in sys.argv[1:] or PAGES:
        update(GALLERY / f"{page}.md")
        print(page, flush=True)
