"""The rows of a mini-batch on several devices of one process: the same answer."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from support import on_devices, sent

import isvi
from isvi.core.errors import ConfigurationError

SCRIPT = Path(on_devices.__file__)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Two devices are faked by XLA, which has to know before it starts."""
    surroundings = os.environ | {
        "XLA_FLAGS": "--xla_force_host_platform_device_count=2",
        "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",
        "PYTHONPATH": os.pathsep.join([str(SCRIPT.parents[1]), *sys.path]),
    }
    command = [sys.executable, str(SCRIPT), str(tmp_path_factory.mktemp("rows"))]
    done = subprocess.run(command, env=surroundings, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("where", ["in memory", "in windows"])
def test_two_devices_give_the_answer_of_one(found: Any, where: str) -> None:
    """Up to rounding of float32, over 60 records."""
    one, two = found[where]
    assert (one["devices"], two["devices"]) == (1, 2)
    assert one["gradients"] == two["gradients"]
    np.testing.assert_allclose(two["mean"], one["mean"], rtol=1e-4)
    np.testing.assert_allclose(two["sd"], one["sd"], rtol=1e-3)


@pytest.mark.parametrize(
    ("model", "devices", "options", "says"),
    [
        (sent.in_jax, 10_000, {}, "the number that JAX sees"),
        (sent.in_jax, [], {}, "some of jax.devices"),
        (sent.in_jax, 2 * jax.devices(), {"batch_size": 15}, "must be a multiple of 2"),
        (sent.on_host, 1, {}, "evaluated by workers instead"),
        (sent.in_jax, 1, {"workers": 2}, "cannot go together"),
    ],
)
def test_what_cannot_be_spread_is_refused(model: Any, devices: Any, options: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        isvi.fit(model(), sent.data(), devices=devices, **sent.OPTIONS | options)
