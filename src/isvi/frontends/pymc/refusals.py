"""Idioms of PyMC for which there is another way here, noticed before anything is exported."""

from typing import Any

from isvi.core.errors import ModelError, require
from isvi.frontends.pymc.graphs import ancestors


def check_supported(source: Any) -> None:
    """Refuse mini-batches that PyMC draws itself, and variables without a log density."""
    minibatches = sorted(
        variable.name for variable in [*source.basic_RVs, *source.potentials] if _contains(variable, "MinibatchOp")
    )
    require(
        not minibatches,
        ModelError,
        f"{minibatches} of the PyMC model are computed from pm.Minibatch, which draws its rows itself. isvi makes its "
        "own mini-batches: put all rows into containers, pm.Data('x', x), leave out pm.Minibatch and total_size, and "
        "call isvi.fit(isvi.from_pymc(model), batch_size=...).",
    )
    simulated = sorted(rv.name for rv in source.basic_RVs if _is_simulator(rv))
    require(
        not simulated,
        ModelError,
        f"{simulated} of the PyMC model are pm.Simulator variables, which have no log density to approximate. Where a "
        "log likelihood and its gradient can be computed, give them to isvi.from_gradient; otherwise sample with "
        "pm.sample_smc.",
    )


def _contains(variable: Any, op: str) -> bool:
    return any(node.owner is not None and type(node.owner.op).__name__ == op for node in ancestors(variable))


def _is_simulator(variable: Any) -> bool:
    return any(kind.__name__ == "SimulatorRV" for kind in type(variable.owner.op).__mro__)
