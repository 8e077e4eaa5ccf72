"""What a fit costs before its first step: how often JAX traces the model, and what XLA compiles.

A linear regression with the default method, so small that its steps take no time. It is fitted twice: a fit compiles
programs of its own, so the second needs less only by what JAX remembers of small functions. Numbers of traces and of
programs are the same on every machine; a test guards them (``tests/benchmarks/test_compile_cost.py``). Seconds are
not. Run it with ``make benchmark``, on a machine that does nothing else.
"""

import argparse
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.stats import norm

import isvi

TRACED = "/jax/core/compile/jaxpr_trace_duration"
COMPILED = "/jax/core/compile/backend_compile_duration"
"""Events of ``jax.monitoring``; both come with the name of the function."""
LOOP = "run"
"""The compiled loop's name, in ``isvi.fitting.running.loop``."""


@dataclass
class Cost:
    """What was traced and compiled.

    Attributes:
        model_traces: times that the model's likelihood was traced, for its value or a derivative.
        programs: how often XLA compiled a program of a name.
        tracing: seconds, in all. What is traced inside of something else counts twice.
        compiling: seconds, in all.
    """

    model_traces: int = 0
    programs: Counter[str] = field(default_factory=Counter)
    tracing: float = 0.0
    compiling: float = 0.0

    @property
    def loops(self) -> int:
        return self.programs[LOOP]

    def note(self, event: str, seconds: float, **about: Any) -> None:
        """A listener for ``jax.monitoring``."""
        if event == TRACED:
            self.tracing += seconds
        elif event == COMPILED:
            self.compiling += seconds
            self.programs[_name(about.get("fun_name", "unknown"))] += 1


def _name(of_program: str) -> str:
    """Of the function: JAX calls its program ``jit(run)`` or ``jit_run``."""
    return of_program.removeprefix("jit").strip("()_")


@contextmanager
def measured() -> Iterator[Cost]:
    """Notes what is traced and compiled inside."""
    cost = Cost()
    jax.monitoring.register_event_duration_secs_listener(cost.note)
    try:
        yield cost
    finally:
        jax.monitoring.unregister_event_duration_listener(cost.note)


def counting(model: isvi.Model, cost: Cost) -> isvi.Model:
    """The model, with its likelihood's traces counted. Compiled code does not call it."""
    likelihood = model.log_likelihood
    assert likelihood is not None

    def counted(z: Any, rows: Any) -> Any:
        cost.model_traces += 1
        return likelihood(z, rows)

    return replace(model, log_likelihood=counted)


def cost_of_fit(model: isvi.Model, data: Any, **options: Any) -> tuple[Cost, isvi.Fit]:
    with measured() as cost:
        fit = isvi.fit(counting(model, cost), data, progress=False, **options)
    return cost, fit


def linear_regression(rows: int = 500, columns: int = 5) -> tuple[isvi.Model, dict[str, np.ndarray]]:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(rows, columns)).astype(np.float32)
    y = (x @ rng.normal(size=columns) + rng.normal(size=rows)).astype(np.float32)
    model = isvi.Model(
        latents={"w": isvi.real(columns), "noise": isvi.positive()},
        log_prior=lambda z: jnp.sum(norm.logpdf(z["w"])) + norm.logpdf(z["noise"]),
        log_likelihood=lambda z, batch: jnp.sum(norm.logpdf(batch["y"], batch["x"] @ z["w"], z["noise"])),
    )
    return model, {"x": x, "y": y}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rows", type=int, default=500)
    options.add_argument("--columns", type=int, default=5)
    options.add_argument("--programs", action="store_true", help="name the programs that were compiled")
    chosen = options.parse_args()

    model, data = linear_regression(chosen.rows, chosen.columns)
    print(f"linear regression, {chosen.rows:,} rows, {chosen.columns} coefficients, default method")
    for which in ("first", "second"):
        cost, fit = cost_of_fit(model, data)
        print(f"the {which} fit: {fit.gradients:,} model gradients in {fit.seconds:.2f} s")
        print(f"    traces of the model  {cost.model_traces:6d}")
        print(f"    programs compiled    {cost.programs.total():6d}, of which {cost.loops} the loop")
        print(f"    tracing              {cost.tracing:6.2f} s")
        print(f"    compiling            {cost.compiling:6.2f} s")
        if chosen.programs:
            print("    " + ", ".join(f"{name} {times}" for name, times in cost.programs.most_common()))


if __name__ == "__main__":
    main()
