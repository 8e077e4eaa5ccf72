"""Every Python block of the README, CONTRIBUTING and the docs runs, and prints what the text block behind it says.

Blocks of one file share their names, from top to bottom. Words must be the same; numbers may differ by what
another processor's rounding explains. ``python tests/test_readme.py`` writes today's output into the files.
"""

import contextlib
import io
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
LONG = {"local.md"}
"""Pages that take a minute."""
FILES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"```python\n(?P<code>.*?)```(?:\n\n```text\n(?P<output>.*?)```)?", re.DOTALL)
NUMBER = re.compile(r"[-+]?\d[\d,]*\.?\d*(?:e[-+]?\d+)?")


def run_blocks(path: Path, text: str | None = None):
    """Yields (match, what it printed) for each Python block of a file, or of the text given in its place."""
    names: dict = {"__name__": path.stem}
    text = path.read_text() if text is None else text
    for block in BLOCK.finditer(text):
        line = text[: block.start()].count("\n") + 2
        code = compile("\n" * (line - 1) + block["code"], str(path), "exec")
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(code, names)
        yield block, "\n".join(text.rstrip() for text in printed.getvalue().splitlines()) + "\n"


def words(text: str) -> list[str]:
    """The text without its numbers, and without the frame that a table is drawn with."""
    return NUMBER.sub("#", re.sub(r"[─━┄\-]{2,}", "", text)).split()


def numbers(text: str) -> list[float]:
    return [float(number.replace(",", "")) for number in NUMBER.findall(text)]


@pytest.mark.parametrize(
    "path",
    [pytest.param(path, marks=pytest.mark.slow) if path.name in LONG else path for path in FILES],
    ids=lambda path: path.name,
)
def test_examples_run_and_print_what_is_written(path: Path) -> None:
    for block, printed in run_blocks(path):
        if block["output"] is not None:
            assert_printed(printed, block["output"])


def assert_printed(printed: str, written: str) -> None:
    assert words(printed) == words(written), printed
    for got, expected in zip(numbers(printed), numbers(written), strict=True):
        # Counts of steps and gradients depend on when a fit converges.
        assert got == pytest.approx(expected, rel=0.3 if expected >= 100 else 0.05, abs=0.02), printed


def update(path: Path) -> None:
    """Write what the blocks print today behind them."""
    text = path.read_text()
    for block, printed in reversed(list(run_blocks(path))):
        if block["output"] is not None:
            text = text[: block.start("output")] + printed + text[block.end("output") :]
    path.write_text(text)


if __name__ == "__main__":
    for file in FILES:
        update(file)
