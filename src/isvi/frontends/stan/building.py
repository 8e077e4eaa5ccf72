"""Two ways to compile a Stan program: BridgeStan, or the compiler and headers in the httpstan package."""

import os
from contextlib import nullcontext
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from isvi.core.errors import ConfigurationError, ModelError
from isvi.core.extras import import_extra
from isvi.core.programs import cache_folder
from isvi.frontends.stan.program import StanModel
from isvi.frontends.stan.telling import told

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
        compiling.verify_bridgestan_path(os.environ.get("BRIDGESTAN") or compiling.CURRENT_BRIDGESTAN)
    except ValueError:
        return False
    return True


def _bridgestan(code: str, data: str) -> StanModel:
    bridgestan = import_extra("bridgestan", "stan", "isvi.from_stan")
    # Compiled programs stay, under a name that says what is in them.
    folder = cache_folder("stan") / f"bridgestan-{sha256(code.encode()).hexdigest()[:24]}"
    path, library = folder / "program.stan", folder / "program_model.so"
    if not path.exists() or path.read_text() != code:
        folder.mkdir(parents=True, exist_ok=True)
        path.write_text(code)
    if not library.exists():
        _compile_with_bridgestan(bridgestan, path)
    try:
        return bridgestan.StanModel(str(library), data, warn=False)
    except RuntimeError as error:
        raise ModelError(f"The Stan program does not accept the data: {error}") from error


def _compile_with_bridgestan(bridgestan: Any, path: Path) -> None:
    try:
        with nullcontext() if has_sources() else told("downloading BridgeStan's sources", "a few minutes"):
            bridgestan.compile.get_bridgestan_path()
        with told("compiling the Stan program with BridgeStan", "half a minute; the first one several minutes"):
            bridgestan.compile_model(path)
    except RuntimeError as error:
        raise ModelError(f"BridgeStan does not compile the Stan program:\n{str(error)[-2000:]}") from error
    except ValueError as error:
        raise ConfigurationError(
            f"BridgeStan has no sources of Stan, and cannot download them: {error} Install httpstan, whose package "
            "carries them (pip install httpstan), or set BRIDGESTAN to the folder of BridgeStan's sources."
        ) from error


def _httpstan(code: str, data: str) -> StanModel:
    import_extra("httpstan", "stan", "isvi.from_stan(builder='httpstan')")
    from isvi.frontends.stan.compiled import CompiledStan
    from isvi.frontends.stan.compiling import compile_program

    return CompiledStan(compile_program(code), data)
