"""A guard on what a fit costs before its first step: numbers of traces and programs, which no busy machine changes.

Whoever exceeds one of the numbers here has added work that every fit pays for; whoever needs it raises the number, and
says why. ``benchmarks/compile_cost.py --programs`` names what is compiled.
"""

from typing import Any

import jax
import jax.numpy as jnp
import pytest

import isvi
from benchmarks.compile_cost import Cost, cost_of_fit, counting, linear_regression, measured

MODEL_TRACES = 4
"""Shapes, values at the start, the flops of a gradient, and the loop."""
OWN_PROGRAMS = 9
"""Of every fit: the loop, the start and its draws, the checks of the model, the reasons to end, the weights' health."""
ALL_PROGRAMS = 65
"""Of the first fit of a process: besides, small functions of JAX, which it remembers."""
ALGORITHMS: dict[str, Any] = {"auto": None, "isgd": isvi.ISGD(), "isag": isvi.ISAG()}


def test_a_second_fit_compiles_only_what_is_its_own() -> None:
    """However long it runs: nothing is traced or compiled per row of history, or per step."""
    jax.clear_caches()
    problem = linear_regression()
    first, second, longer = (cost_of_fit(*problem, budget=budget, starts=1)[0] for budget in (200, 200, 2000))
    assert first.loops == 1
    assert first.model_traces <= MODEL_TRACES
    assert first.programs.total() <= ALL_PROGRAMS, first.programs
    assert second.programs.total() <= OWN_PROGRAMS, second.programs
    for again in (second, longer):
        assert again.loops == 1
        assert again.model_traces == first.model_traces
        assert again.programs == second.programs


@pytest.mark.parametrize("algorithm", ALGORITHMS.values(), ids=ALGORITHMS)
def test_the_loop_is_compiled_once_with_any_algorithm(algorithm: Any) -> None:
    """Over several mini-batches, of which the last is shorter."""
    cost, fit = cost_of_fit(*linear_regression(rows=130), algorithm=algorithm, batch_size=30, budget=200)
    assert fit.dataset.num_batches == 5
    assert cost.loops == 1


def test_programs_are_counted_by_name() -> None:
    def doubled(x: jax.Array) -> jax.Array:
        return 2 * x

    compiled = jax.jit(doubled)
    short, long = jnp.arange(2.0), jnp.arange(3.0)
    with measured() as cost:
        compiled(short)
        compiled(short)
        assert cost.programs["doubled"] == 1
        compiled(long)
        assert cost.programs["doubled"] == 2
    jax.jit(lambda x: doubled(x))(long)
    assert cost.programs["doubled"] == 2
    assert cost.compiling > 0
    assert cost.tracing > 0


def test_traces_are_counted_and_calls_of_compiled_code_are_not() -> None:
    cost = Cost()
    model, data = linear_regression(rows=10)
    compiled = jax.jit(counting(model, cost).log_likelihood)  # type: ignore[arg-type]
    for noise in (1.0, 2.0):
        compiled({"w": jnp.zeros(5), "noise": jnp.array(noise)}, data)
    assert cost.model_traces == 1
