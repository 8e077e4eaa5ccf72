"""How much effort compiling is worth.

XLA optimises a program as if it ran for hours. On a CPU that takes seconds, and a fit is often over in less: with
three hundred small kernels in a step, making each of them fast costs more than all of them save. So what runs once,
or for a short time, is compiled with less effort; that changes the last bits of numbers and nothing else.
"""

from collections.abc import Callable, Mapping
from typing import Any

import jax

HARDLY: Mapping[str, Any] = {"xla_cpu_use_fusion_emitters": False, "xla_backend_optimization_level": 0}
"""For what runs once."""
A_LITTLE: Mapping[str, Any] = {"xla_cpu_use_fusion_emitters": False, "xla_backend_optimization_level": 1}
"""For a short run: half the time to compile. A mixture of 25 components then runs 40% slower, a regression as fast."""
VERY_SHORT = 3e9
"""Floating-point operations that take two seconds more when compiled hardly at all, which saves as much."""
SHORT = 3e10
"""Floating-point operations of a short run: one to five seconds, of which it loses less than compiling would take."""


def compiled_once(function: Callable[..., Any], **options: Any) -> jax.stages.Wrapped:
    """``jax.jit`` for a function that is called once, from outside compiled code."""
    return jax.jit(function, compiler_options=on_cpu(HARDLY), **options)


def effort(operations: float, at_most: bool = True) -> dict[str, Any] | None:
    """Compiler options for a loop that will take so many floating-point operations in all, at most or about. A function
    of that number alone, so that a run that is resumed is compiled as it was."""
    if operations < VERY_SHORT and not at_most:
        return on_cpu(HARDLY)
    return on_cpu(A_LITTLE) if operations < SHORT else None


def operations(lowered: jax.stages.Lowered) -> float:
    """Floating-point operations of a program, as XLA counts them. Transcendental functions are sequences of ten."""
    cost = lowered.cost_analysis() or {}
    return float(cost.get("flops", 0.0) + 10 * cost.get("transcendentals", 0.0))


def on_cpu(options: Mapping[str, Any]) -> dict[str, Any] | None:
    return dict(options) if jax.default_backend() == "cpu" else None
