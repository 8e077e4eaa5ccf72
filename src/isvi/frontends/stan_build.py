"""Compiling a Stan program with what the httpstan package carries: stanc, Stan's headers and its libraries.

A small C interface (``stan_shim.cpp``) is compiled together with the program into a shared library, which ctypes
loads. The library is kept, so a program is compiled once per machine.
"""

import ctypes
import os
import shutil
import subprocess
import tempfile
from hashlib import sha256
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from isvi.core.errors import ConfigurationError, ModelError, require

SHIM = Path(__file__).with_name("stan_shim.cpp")
FLAGS = [
    *("-shared", "-fPIC", "-std=c++17", "-O1", "-w"),
    *("-D_REENTRANT", "-DBOOST_DISABLE_ASSERTS", "-DBOOST_PHOENIX_NO_VARIADIC_EXPRESSION"),
    "-D_GLIBCXX_USE_CXX11_ABI=0",  # as the libraries in the package were built
]
LIBRARIES = ["-lsundials_cvodes", "-lsundials_idas", "-lsundials_kinsol", "-lsundials_nvecserial", "-ltbb"]


def cache_folder() -> Path:
    """Where compiled programs are kept: ``$ISVI_CACHE``, or the user's cache folder."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("ISVI_CACHE") or Path(base) / "isvi") / "stan"


def compile_program(code: str) -> Path:
    """The shared library of a program, compiled now or before. Compiling takes half a minute."""
    found = find_spec("httpstan")
    assert found is not None
    assert found.origin is not None
    package = Path(found.origin).parent
    key = sha256("\n".join([code, SHIM.read_text(), version("httpstan"), str(package), *FLAGS]).encode()).hexdigest()
    library = cache_folder() / f"{key[:24]}.so"
    if not library.exists():
        library.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=library.parent) as folder:
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


class CompiledStan:
    """A compiled program with its data, with the methods of ``bridgestan.StanModel`` that isvi uses."""

    def __init__(self, library: Path, data: str, seed: int = 0) -> None:
        self._stan = _declared(ctypes.CDLL(str(library)))
        self._handle = self._stan.isvi_stan_open(data.encode(), seed)
        require(self._handle is not None, ModelError, f"The Stan program does not accept the data: {self._message()}")
        self._dim = self._stan.isvi_stan_dim(self._handle)

    def __del__(self) -> None:
        if getattr(self, "_handle", None) is not None:
            self._stan.isvi_stan_close(self._handle)

    def param_names(self, *, include_tp: bool = False, include_gq: bool = False) -> list[str]:
        return _split(self._stan.isvi_stan_names(self._handle, include_tp, include_gq))

    def param_unc_names(self) -> list[str]:
        return _split(self._stan.isvi_stan_unconstrained_names(self._handle))

    def log_density_gradient(self, theta_unc: np.ndarray) -> tuple[float, np.ndarray]:
        z, gradient, value = self._vector(theta_unc), np.empty(self._dim), ctypes.c_double()
        failed = self._stan.isvi_stan_log_density_gradient(
            self._handle, _pointer(z), ctypes.byref(value), _pointer(gradient)
        )
        self._check(failed)
        return value.value, gradient

    def param_constrain(
        self, theta_unc: np.ndarray, *, include_tp: bool = False, include_gq: bool = False, rng: Any = None
    ) -> np.ndarray:
        z, values = (
            self._vector(theta_unc),
            np.empty(len(self.param_names(include_tp=include_tp, include_gq=include_gq))),
        )
        seed = 0 if rng is None else int(rng.integers(2**31))
        failed = self._stan.isvi_stan_constrain(
            self._handle, _pointer(z), include_tp, include_gq, seed, _pointer(values), len(values)
        )
        self._check(failed)
        return values

    def param_unconstrain_json(self, theta_json: str) -> np.ndarray:
        z = np.empty(self._dim)
        self._check(self._stan.isvi_stan_unconstrain(self._handle, theta_json.encode(), _pointer(z)))
        return z

    def new_rng(self, seed: int) -> np.random.Generator:
        return np.random.default_rng(seed)

    def _vector(self, z: np.ndarray) -> np.ndarray:
        vector = np.ascontiguousarray(z, np.float64)
        assert vector.shape == (self._dim,), f"expected {self._dim} unconstrained values, got shape {vector.shape}"
        return vector

    def _check(self, failed: int) -> None:
        if failed:
            raise RuntimeError(self._message())

    def _message(self) -> str:
        return self._stan.isvi_stan_error().decode().strip()


def _split(names: bytes) -> list[str]:
    return names.decode().split(",") if names else []


def _pointer(array: np.ndarray) -> Any:
    return array.ctypes.data_as(ctypes.POINTER(ctypes.c_double))


def _declared(library: ctypes.CDLL) -> ctypes.CDLL:
    """The library with the types of its functions (see ``stan_shim.cpp``)."""
    model, text, integer, vector = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int, ctypes.POINTER(ctypes.c_double)
    signatures: dict[str, tuple[Any, list[Any]]] = {
        "isvi_stan_error": (text, []),
        "isvi_stan_open": (model, [text, ctypes.c_uint]),
        "isvi_stan_close": (None, [model]),
        "isvi_stan_dim": (integer, [model]),
        "isvi_stan_unconstrained_names": (text, [model]),
        "isvi_stan_names": (text, [model, integer, integer]),
        "isvi_stan_log_density_gradient": (integer, [model, vector, vector, vector]),
        "isvi_stan_constrain": (integer, [model, vector, integer, integer, ctypes.c_uint, vector, integer]),
        "isvi_stan_unconstrain": (integer, [model, text, vector]),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library
