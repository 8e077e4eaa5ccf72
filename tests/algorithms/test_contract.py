"""What holds for every algorithm with every family and every estimator.

``init`` and ``step`` run; the state keeps its structure, shapes and types from the first step on; counters are
right; a second call does not trace again; the same key gives the same bits; in float32 and in float64.
"""

from collections.abc import Callable
from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import isvi
from isvi import families

# The first pass ends after three steps, so that six of them see both phases, and empty slots in the second.
START = isvi.ISGD(t=0.0)
ALGORITHMS = {
    "SGD": isvi.SGD(),
    "Natural": isvi.Natural(),
    "ISGD": isvi.ISGD(t=0.5),
    "SAG": isvi.SAG(start=START),
    "SRA": isvi.SRA(start=START),
    "ISAG": isvi.ISAG(start=START),
    "ISAG-latest": isvi.ISAG(latest=5, start=START),
}
REAL, POSITIVE = {"a": isvi.real(2), "b": isvi.real()}, {"a": isvi.positive(2), "b": isvi.positive()}
FAMILIES = {
    "MeanField": (isvi.MeanField(), REAL),
    "Block": (isvi.Block(), REAL),
    "FullRank": (isvi.FullRank(), REAL),
    "StudentT": (families.StudentT(), REAL),
    "LogNormal": (families.LogNormal(), POSITIVE),
    "Gamma": (families.Gamma(), POSITIVE),
    "Beta": (families.Beta(), {"a": isvi.unit_interval(2), "b": isvi.interval(-1.0, 2.0)}),
    "Dirichlet": (families.Dirichlet(), {"a": isvi.simplex(3), "b": isvi.simplex(2)}),
}
ESTIMATORS = {
    "Reparameterization": isvi.Reparameterization(num_samples=2),
    "ScoreFunction": isvi.ScoreFunction(num_samples=2),
}
ROWS = np.linspace(-1.0, 1.0, 5)
NUM_STEPS = 6


def model(latents) -> isvi.Model:
    def log_prior(z):
        return -0.5 * (jnp.sum((z["a"] - 0.4) ** 2) + jnp.sum((z["b"] - 0.3) ** 2))

    return isvi.Model(latents, log_prior, lambda z, rows: -0.1 * jnp.sum((rows - z["a"].sum()) ** 2))


def layout(tree) -> tuple:
    leaves, structure = jax.tree.flatten(tree)
    return structure, [(leaf.shape, leaf.dtype, leaf.weak_type) for leaf in leaves]


EVERY = list(product(ALGORITHMS, FAMILIES, ESTIMATORS))
QUICK = {
    *product(ALGORITHMS, ["MeanField"], ["Reparameterization"]),
    *product(["ISAG-latest"], FAMILIES, ["Reparameterization"]),
    *product(["SAG", "ISAG-latest"], ["MeanField", "Gamma"], ["ScoreFunction"]),
}
"""Each algorithm with one family, and each family with one algorithm that has empty slots; the others are slow."""
PAIRS = {
    names
    for names in EVERY
    if sum(list(kind).index(name) for kind, name in zip((ALGORITHMS, FAMILIES, ESTIMATORS), names, strict=True)) % 2
    == 0
}
"""Every algorithm with every family, and either with both estimators; the other half of all combinations is slow."""


def set_up(algorithm: str, family: str, estimator: str) -> tuple[isvi.Method, isvi.Dataset, isvi.Approximation]:
    chosen, latents = FAMILIES[family]
    dataset = isvi.Dataset.from_arrays(ROWS, batch_size=2)
    approximation = isvi.approximate(chosen, latents)
    bound = ESTIMATORS[estimator].bind(isvi.Target(model(latents), approximation.coordinates), approximation)
    return isvi.build(bound, ALGORITHMS[algorithm], optax.adam(0.01), dataset), dataset, approximation


def cases(quick_in_double: Callable[[tuple], bool], quick_in_single: Callable[[tuple], bool]) -> list:
    """Every combination in both precisions; those that are not quick are marked slow."""
    return [
        pytest.param(
            double,
            *names,
            id="-".join([*names, "float64" if double else "float32"]),
            marks=() if (quick_in_double if double else quick_in_single)(names) else pytest.mark.slow,
        )
        for names in EVERY
        for double in (False, True)
    ]


@pytest.mark.parametrize(
    ("double", "algorithm", "family", "estimator"),
    cases(quick_in_double=lambda names: names in QUICK, quick_in_single=lambda names: names in PAIRS | QUICK),
)
def test_a_step_keeps_the_layout_of_the_state(algorithm, family, estimator, double):
    """Structure, shapes and types, weak ones too: so a second call cannot trace again. Nothing is computed."""
    with jax.enable_x64(double):
        method, dataset, approximation = set_up(algorithm, family, estimator)
        location = jax.ShapeDtypeStruct((approximation.dim,), jnp.result_type(float))
        start = jax.eval_shape(lambda location: method.init(approximation.init(location, location)), location)
        state, info = jax.eval_shape(method.step, jax.random.key(0), start, dataset.batch(0))
        assert layout(state) == layout(start)
        floats = [leaf for leaf in jax.tree.leaves((state, info)) if jnp.issubdtype(leaf.dtype, jnp.floating)]
        assert {leaf.dtype for leaf in floats} == {jnp.result_type(float)}


@pytest.mark.parametrize(
    ("double", "algorithm", "family", "estimator"),
    cases(
        quick_in_double=lambda names: names in QUICK and "MeanField" in names,
        quick_in_single=lambda names: names in QUICK,
    ),
)
def test_steps(algorithm, family, estimator, double):
    """Counters are right, everything is finite, all parameters move, nothing is traced twice, and the same keys
    give the same bits."""
    with jax.enable_x64(double):
        method, dataset, approximation = set_up(algorithm, family, estimator)
        traces = []

        @jax.jit
        def step(key, state, batch):
            traces.append(1)
            return method.step(key, state, batch)

        @jax.jit
        def begin(location):
            return method.init(approximation.init(location, jnp.full_like(location, 0.1)))

        start = begin(jnp.asarray(centre(approximation)))

        def run() -> tuple[isvi.State, list[isvi.Info]]:
            state, infos = start, []
            for number in range(NUM_STEPS):
                state, info = step(jax.random.key(number), state, dataset.batch(number % 3))
                infos.append(info)
            return state, infos

        state, infos = run()
        assert len(traces) == 1
        assert int(state.steps) == NUM_STEPS
        assert int(state.gradients) == 2 * sum(int(info.fresh) for info in infos)
        assert not any(bool(info.failed) for info in infos)
        assert bool(infos[0].fresh)
        assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves((state, infos)))
        jax.tree.map(np.testing.assert_array_equal, run(), (state, infos))
        moved = jax.tree.map(lambda new, old: bool((new != old).any()), state.params, start.params)
        assert all(jax.tree.leaves(moved))


def centre(approximation: isvi.Approximation) -> np.ndarray:
    """A point inside the supports of all families here."""
    parts = [
        np.zeros(entry.shape) if not entry.constrained else np.full(entry.shape, 1 / max(entry.shape[-1:] or (2,)))
        for entry in approximation.coordinates.entries
    ]
    return np.concatenate([part.ravel() for part in parts])
