"""The pages about front ends: their examples run and print what is written. Pages skip without their package."""

from importlib.util import find_spec
from pathlib import Path

import pytest
from test_readme import numbers, run_blocks, words

PAGES = Path(__file__).parents[2] / "docs" / "frontends"
NEEDS = {"numpyro": (), "enumerate": ("funsor",), "gradient": (), "pymc": ("pymc",), "stan": ("httpstan",)}


def test_every_page_is_tested() -> None:
    assert sorted(path.stem for path in PAGES.glob("*.md")) == sorted(NEEDS)


@pytest.mark.parametrize("page", NEEDS)
def test_examples_run_and_print_what_is_written(page: str) -> None:
    for package in NEEDS[page]:
        if find_spec(package) is None:
            pytest.skip(f"{package} is not installed: pip install 'isvi[{page}]'")
    for block, printed in run_blocks(PAGES / f"{page}.md"):
        if block["output"] is None:
            continue
        assert words(printed) == words(block["output"]), printed
        assert numbers(printed) == pytest.approx(numbers(block["output"]), rel=0.05, abs=0.02), printed
