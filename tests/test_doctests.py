"""The examples in the package's docstrings run as written."""

import re
import subprocess
import sys
from pathlib import Path

PACKAGE = Path(__file__).parent.parent / "src" / "isvi"


def test_docstring_examples():
    """In a process of its own: where shapes are checked, functions are wrapped, and doctest does not see them."""
    command = [sys.executable, "-m", "pytest", "--doctest-modules", "--doctest-ignore-import-errors", "--noconftest"]
    options = ["-c", "/dev/null", "--rootdir", str(PACKAGE.parent), "-p", "no:cacheprovider", "-q", "-W", "error"]
    done = subprocess.run([*command, *options, str(PACKAGE)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed is not None, done.stdout
    assert int(passed[1]) >= 4
