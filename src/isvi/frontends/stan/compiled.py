"""A shared library made of a Stan program, spoken to through ctypes."""

import ctypes
from pathlib import Path
from typing import Any

import numpy as np

from isvi.core.errors import ModelError, require


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
