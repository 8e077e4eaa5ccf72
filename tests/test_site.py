"""What holds the site together: links lead somewhere, pages are found from the index, the reference has every name.

``make docs`` checks more, with Sphinx; this needs nothing.
"""

import re
import runpy
from pathlib import Path

import pytest

import isvi

ROOT = Path(__file__).parents[1]
PAGES = sorted(
    [
        *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")),
        *(path for path in (ROOT / "docs").rglob("*.md") if path.parent.name != "reference"),
        *(ROOT / "benchmarks" / "results").glob("*.md"),
        ROOT / "reproduce" / "results" / "RESULTS.md",
    ]
)
CODE = re.compile(r"^```.*?^```|`[^`\n]*`", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
TOCTREE = re.compile(r"^```\{toctree\}\n(.*?)^```", re.DOTALL | re.MULTILINE)


def anchors(page: Path) -> set[str]:
    """As GitHub and MyST make them of headings."""
    headings = HEADING.findall(re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for link in LINK.findall(CODE.sub("", page.read_text())):
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        assert target.exists(), f"{link} of {page.name}"
        if anchor:
            assert anchor in anchors(target), f"{link} of {page.name}: there is no such heading"


def test_every_page_is_in_the_index() -> None:
    """Directly, or by a page that is."""
    found, waiting = set(), [ROOT / "docs" / "index.md"]
    while waiting:
        page = waiting.pop()
        found.add(page)
        for tree in TOCTREE.findall(page.read_text()):
            for line in tree.splitlines():
                name = re.sub(r".*<(.*)>", r"\1", line.strip())
                if name and not name.startswith(":"):
                    waiting += [
                        path.resolve() for path in page.parent.glob(f"{name}.md") if path.resolve() not in found
                    ]
    assert set(PAGES) <= found


def test_the_reference_has_every_name() -> None:
    pytest.importorskip("matplotlib")  # for isvi.plots
    assert set(isvi.__all__) <= runpy.run_path(str(ROOT / "docs" / "site_reference.py"))["names"]()
