"""Every promise of ``docs/promises.md`` names a test that exists."""

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_every_promise_has_its_test():
    lines = [line for line in (ROOT / "docs" / "promises.md").read_text().splitlines() if line.startswith("| ")]
    promises = [line for line in lines if not line.startswith(("| what happens", "| --- "))]
    assert len(promises) >= 25
    for line in promises:
        named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", line)
        assert named, line
        for file, name in named:
            assert f"def {name}(" in (ROOT / file).read_text(), line
