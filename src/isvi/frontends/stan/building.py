"""Two ways to compile a Stan program: BridgeStan, or the compiler and headers in the httpstan package."""

import tempfile
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from isvi.core.extras import import_extra
from isvi.frontends.stan.program import StanModel

Builder = Literal["auto", "bridgestan", "httpstan"]


def build_program(builder: Builder, code: str, data: str) -> StanModel:
    """The program, compiled now or before, with its data."""
    build = _bridgestan if choose(builder) == "bridgestan" else _httpstan
    return build(code, data)


def choose(builder: Builder) -> Literal["bridgestan", "httpstan"]:
    """BridgeStan if it is installed, except if it would have to download what httpstan has."""
    if builder != "auto":
        return builder
    if find_spec("httpstan") is None:
        return "bridgestan"
    return "bridgestan" if find_spec("bridgestan") is not None and has_sources() else "httpstan"


def has_sources() -> bool:
    """Whether BridgeStan can compile without downloading anything."""
    from bridgestan import compile as compiling

    try:
        compiling.verify_bridgestan_path(compiling.os.environ.get("BRIDGESTAN") or compiling.CURRENT_BRIDGESTAN)
    except ValueError:
        return False
    return True


def _bridgestan(code: str, data: str) -> StanModel:
    bridgestan = import_extra("bridgestan", "stan", "isvi.from_stan")
    # Compiled programs stay, under a name that says what is in them.
    folder = Path(tempfile.gettempdir()) / "isvi-bridgestan" / sha256(code.encode()).hexdigest()[:16]
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "program.stan"
    if not path.exists():
        path.write_text(code)
    return bridgestan.StanModel(str(path), data, warn=False)


def _httpstan(code: str, data: str) -> StanModel:
    import_extra("httpstan", "stan", "isvi.from_stan(builder='httpstan')")
    from isvi.frontends.stan.compiled import CompiledStan
    from isvi.frontends.stan.compiling import compile_program

    return CompiledStan(compile_program(code), data)
