"""PyMC's ADVI with Adam, on the models that are easily written in PyMC: all but the mixture.

It draws its mini-batches itself, with replacement, and computes in float64; both are what PyMC does when nothing is
said. It starts at the same locations as everyone, with the standard deviations that a setting asks for. The rate is
constant, since PyMC comes without schedules. The progress bar of ``pm.fit`` and its list of losses are left out, in
PyMC's favour. Its linear algebra gets one thread: two wait for each other on a busy machine with two cores, and made
the steps on 500 features thirty times slower.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from threadpoolctl import threadpool_limits

from benchmarks.measure import (
    CHECKPOINTS,
    Carry,
    Run,
    Setting,
    Time,
    checkpoint_counts,
    follow,
    good_enough,
    sweep_counts,
)
from benchmarks.problems import Problem
from benchmarks.rivals import start_location
from isvi.datasets import LogisticRegression

NAME = "PyMC ADVI"
INSTALL = "pip install 'isvi[pymc]'"


def why_not(problem: Problem) -> str | None:
    """Why this rival cannot run on a problem; None if it can."""
    if find_spec("pymc") is None:
        return f"PyMC is not installed: {INSTALL}"
    return None if problem.letter in MODELS else "this model is not written in PyMC here"


# The models, in PyMC. Positive latents go through softplus, as in this library, instead of PyMC's exp: the family of
# approximations is then the same, and so is the optimum.


def _gaussian(rows: dict[str, Any], total: int) -> None:
    import pymc as pm

    dim = rows["x"].type.shape[1]
    mean = pm.Normal("mean", 0.0, 1.0, shape=dim)
    pm.Normal("x", mean, tau=_precision(dim), observed=rows["x"], total_size=total)


def _linear(prior_sd: float) -> Callable[[dict[str, Any], int], None]:
    def model(rows: dict[str, Any], total: int) -> None:
        import pymc as pm

        predictor = _predictor(rows["x"], prior_sd)
        pm.Normal("y", predictor, tau=_precision(), observed=rows["y"], total_size=total)

    return model


def _logistic(rows: dict[str, Any], total: int) -> None:
    import pymc as pm

    predictor = _predictor(rows["x"], LogisticRegression.prior_sd)
    pm.Bernoulli("y", logit_p=predictor, observed=rows["y"], total_size=total)


def _hierarchy(destinations: int) -> Callable[[dict[str, Any], int], None]:
    def model(rows: dict[str, Any], total: int) -> None:
        import pymc as pm
        from pymc.distributions.transforms import log_exp_m1

        predictor = _predictor(rows["x"], LogisticRegression.prior_sd)
        sigma = pm.HalfNormal("sigma", 1.0, default_transform=log_exp_m1)
        u = pm.Normal("u", 0.0, sigma, shape=destinations)
        pm.Bernoulli("y", logit_p=predictor + u[rows["destination"]], observed=rows["y"], total_size=total)

    return model


def _poisson(rows: dict[str, Any], total: int) -> None:
    import pymc as pm

    pm.Poisson("y", pm.math.exp(_predictor(rows["x"], 1.0)), observed=rows["y"], total_size=total)


def _predictor(x: Any, prior_sd: float) -> Any:
    import pymc as pm

    return x @ pm.Normal("w", 0.0, prior_sd, shape=x.type.shape[1])


def _precision(*shape: int) -> Any:
    import pymc as pm
    from pymc.distributions.transforms import log_exp_m1

    return pm.Gamma("precision", alpha=1e-3, beta=1e-3, shape=shape, default_transform=log_exp_m1)


MODELS: dict[str, Callable[[Problem], Callable[[dict[str, Any], int], None]]] = {
    "a": lambda problem: _gaussian,
    "b": lambda problem: _linear(prior_sd=1.0),
    "b'": lambda problem: _linear(prior_sd=100.0),
    "d": lambda problem: _logistic,
    "e": lambda problem: _hierarchy(problem.model.latents["u"].shape[0]),
    "f": lambda problem: _poisson,
}
COUNTS = ("d", "e", "f")
"""The problems whose outcomes PyMC wants as integers."""


def build_model(problem: Problem, batch_size: int | None = None) -> Any:
    """The problem's model in PyMC, over mini-batches or over all rows."""
    import pymc as pm
    import pytensor.tensor as pt

    data = {name: _as_pymc_wants(problem, name) for name in problem.data}
    with pm.Model() as model:
        tensors = [pt.as_tensor(values) for values in data.values()]
        if batch_size is not None:
            found = pm.Minibatch(*tensors, batch_size=batch_size)
            tensors = found if isinstance(found, list) else [found]
        MODELS[problem.letter](problem)(dict(zip(data, tensors, strict=True)), len(next(iter(data.values()))))
    return model


def _as_pymc_wants(problem: Problem, name: str) -> np.ndarray:
    """A column in the type that PyMC computes with: it refuses to observe a mini-batch that it would have to cast."""
    import pymc as pm

    values = problem.data[name]
    whole = name == "destination" or (name == "y" and problem.letter in COUNTS)
    return pm.intX(values) if whole else pm.floatX(values)


# Running it.


@dataclass(eq=False)
class PyMCRacer:
    """Runs PyMC on a problem; compiled anew for every run, since the rate is compiled in.

    The first run leaves C code behind on disk that later ones use: their compilation is what a second call of
    ``pm.fit`` pays. The first one waits for the C compiler, some twenty seconds more.
    """

    problem: Problem
    steps_per_gradient: int = 1

    def schedules(self, budget: int) -> list[tuple[float, float]]:
        """Constant only."""
        return [(math.inf, 0.1)]

    def run(self, setting: Setting, seed: int, budget: int, checkpoints: int = CHECKPOINTS) -> Run:
        """One timed run."""
        return self._run(setting, seed, checkpoint_counts(budget, checkpoints), good_enough(self.problem))

    def sweep(self, settings: list[Setting], seed: int, budget: int) -> list[Run]:
        """One setting after the other."""
        return [self._run(setting, seed, sweep_counts(budget)) for setting in settings]

    def _run(self, setting: Setting, seed: int, counts: Sequence[int], stop: float = math.inf) -> Run:
        import pymc as pm

        location = start_location(self.problem, seed)  # found by isvi.fit, at its own cost
        with build_model(self.problem, self.problem.batch_size):
            started = Time.now()
            inference = begin(self.problem, location, seed, setting.scale)
            optimizer = pm.adam(learning_rate=setting.rate)
            # With the loss, as pm.fit does: PyMC 5.28 finds its random number generators in what a step returns, and
            # one that returns nothing sees the same noise and the same mini-batch for ever.
            step = inference.objective.step_function(obj_n_mc=1, obj_optimizer=optimizer, score=True)
            compilation = Time.since(started)

        def advance(carry: Carry, until: Array) -> Carry:
            with threadpool_limits(1, "blas"):
                for _ in range(int(carry.gradients), int(until)):
                    step()
            return Carry(carry.state, until, until)

        def read(inference: Any) -> list[float]:
            return [self.problem.evaluate(*params(self.problem, inference))]

        (points,) = follow(advance, Carry(inference, jnp.int32(0), jnp.int32(0)), counts, read, stop)
        return Run(points, compilation, str(setting), "budget")


def begin(problem: Problem, location: Array, seed: int, scale: float) -> Any:
    """``pm.ADVI`` at this unconstrained location; to be called inside the model."""
    import pymc as pm

    values, _ = problem.approximation.coordinates.decode(location)
    start = {name: np.asarray(value, np.float64) for name, value in values.items()}
    start_sigma = dict.fromkeys(_value_names(pm.modelcontext(None)).values(), scale)
    return pm.ADVI(random_seed=seed, start=start, start_sigma=start_sigma)


def _value_names(model: Any) -> dict[str, str]:
    """PyMC's names for the unconstrained values of its latents."""
    return {latent.name: model.rvs_to_values[latent].name for latent in model.free_RVs}


def params(problem: Problem, inference: Any) -> tuple[np.ndarray, np.ndarray]:
    """Location and log scale, in the order of this library's approximation."""
    approximation = inference.approx
    location, rho = (approximation.params_dict[name].get_value() for name in ("mu", "rho"))
    value_names = _value_names(approximation.model)
    names = [entry.name for entry in problem.approximation.coordinates.entries]
    order = np.concatenate([np.arange(len(location))[approximation.ordering[value_names[name]][1]] for name in names])
    # PyMC's standard deviations are softplus(rho).
    return location[order], np.log(np.logaddexp(0.0, rho[order]))
