"""How much effort compiling is worth."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support import regression

import isvi
from isvi.core.compiling import A_LITTLE, SHORT, compiled_once, effort, operations

A_LOT = {"xla_cpu_use_fusion_emitters": True, "xla_backend_optimization_level": 3}


def test_short_runs_are_compiled_with_little_effort():
    assert effort(0.5 * SHORT) == dict(A_LITTLE)
    assert effort(2 * SHORT) is None


def test_the_compiler_takes_the_options():
    doubled = jax.jit(lambda x: 2 * jnp.sin(x)).lower(jnp.ones(3)).compile(effort(0.0))
    np.testing.assert_allclose(doubled(jnp.ones(3)), compiled_once(lambda x: 2 * jnp.sin(x))(jnp.ones(3)), rtol=1e-6)


def test_operations_of_a_product_of_matrices():
    lowered = jax.jit(jnp.matmul).lower(jnp.ones((30, 40)), jnp.ones((40, 50)))
    assert operations(lowered) == 2 * 30 * 40 * 50


@pytest.mark.slow
def test_a_long_run_ends_where_a_short_one_does(monkeypatch):
    """Effort changes rounding, and nothing else. The tests are compiled with little; here all of it is asked for."""
    options = {"batch_size": regression.BATCH_SIZE, "budget": 300, "progress": False}
    short = isvi.fit(regression.model(), regression.data(), **options)
    monkeypatch.setattr("isvi.fitting.setup.effort", lambda operations: A_LOT)
    long = isvi.fit(regression.model(), regression.data(), **options)
    for one, other in zip(jax.tree.leaves(short.params), jax.tree.leaves(long.params), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-3)
