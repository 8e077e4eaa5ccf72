"""Packages that are not there: the error gives the line that installs them."""

import sys
from typing import Any

import pytest

import isvi
from isvi.core.extras import import_extra


@pytest.mark.parametrize(
    ("package", "extra", "use"),
    [
        ("pymc", "pymc", lambda: isvi.from_pymc(object())),
        ("bridgestan", "stan", lambda: isvi.from_stan("parameters { real x; }", builder="bridgestan")),
        ("httpstan", "stan", lambda: isvi.from_stan("parameters { real x; }", builder="httpstan")),
    ],
)
def test_missing_packages(package: str, extra: str, use: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(isvi.ConfigurationError, match=f"needs {package}.*pip install 'isvi\\[{extra}\\]'"):
        use()


def test_other_import_errors_are_left_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    (tmp_path / "half_installed.py").write_text("import surely_not_there\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="surely_not_there"):
        import_extra("half_installed", "stan", "isvi.from_stan")
