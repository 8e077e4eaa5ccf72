"""Compiling a Stan program with what the httpstan package carries: stanc, Stan's headers and its libraries.

A small C interface (``stan_shim.cpp``) is compiled together with the program into a shared library, which
``compiled`` loads. The library is kept, so a program is compiled once per machine.
"""

import os
import shutil
import subprocess
import tempfile
from hashlib import sha256
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from isvi.core.errors import ConfigurationError, ModelError, require
from isvi.core.programs import cache_folder
from isvi.frontends.stan.telling import told

SHIM = Path(__file__).with_name("stan_shim.cpp")
FLAGS = [
    *("-shared", "-fPIC", "-std=c++17", "-O1", "-w"),
    *("-D_REENTRANT", "-DBOOST_DISABLE_ASSERTS", "-DBOOST_PHOENIX_NO_VARIADIC_EXPRESSION"),
    "-D_GLIBCXX_USE_CXX11_ABI=0",  # as the libraries in the package were built
]
LIBRARIES = ["-lsundials_cvodes", "-lsundials_idas", "-lsundials_kinsol", "-lsundials_nvecserial", "-ltbb"]


def compile_program(code: str) -> Path:
    """The shared library of a program, compiled now or before."""
    found = find_spec("httpstan")
    assert found is not None
    assert found.origin is not None
    package = Path(found.origin).parent
    key = sha256("\n".join([code, SHIM.read_text(), version("httpstan"), str(package), *FLAGS]).encode()).hexdigest()
    library = cache_folder("stan") / f"{key[:24]}.so"
    if not library.exists():
        library.parent.mkdir(parents=True, exist_ok=True)
        with (
            told("compiling the Stan program with httpstan's compiler", "half a minute"),
            tempfile.TemporaryDirectory(dir=library.parent) as folder,
        ):
            # Moved into place when complete: another process may be compiling the same program.
            os.replace(_compile(code, package, Path(folder)), library)
    return library


def _compile(code: str, package: Path, folder: Path) -> Path:
    compiler = os.environ.get("CXX") or shutil.which("g++") or shutil.which("clang++")
    require(
        compiler is not None,
        ConfigurationError,
        "Compiling a Stan program needs a C++ compiler: install g++ (Debian: apt install g++), or set CXX.",
    )
    program, source, library = folder / "program.stan", folder / "program.cpp", folder / "program.so"
    program.write_text(code)
    translated = subprocess.run(
        [str(package / "stanc"), "--name", "program_model", "--print-cpp", str(program)], capture_output=True, text=True
    )
    message = translated.stderr.replace(str(program), "the program").strip()
    require(translated.returncode == 0, ModelError, f"stanc does not accept the Stan program:\n{message}")
    source.write_text(translated.stdout + "\n" + SHIM.read_text())
    libraries = ["-L", str(package / "lib"), *LIBRARIES, f"-Wl,-rpath,{package / 'lib'}"]
    compiled = subprocess.run(
        [str(compiler), *FLAGS, "-I", str(package / "include"), str(source), "-o", str(library), *libraries],
        capture_output=True,
        text=True,
    )
    require(
        compiled.returncode == 0,
        ConfigurationError,
        f"The C++ compiler failed on the Stan program:\n{compiled.stderr[-2000:]}",
    )
    return library
