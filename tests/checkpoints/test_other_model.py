"""A run goes on only with the model that it began with: by its trace, and by what it computes at fixed points."""

import json
import logging
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.stats import norm
from support.callbacks import StopAt

import isvi
from isvi.checkpoints.probes import TOLERANCE, same_values

Y = np.random.default_rng(0).normal(size=60)


def model(offset: np.ndarray | None = None, pull: float = 1.0, called: float = 1.0) -> isvi.Model:
    """With an array that an inner ``jit`` closes over, a rule of its own for derivatives, and a callback."""
    shift = jnp.asarray(np.zeros(3) if offset is None else offset)
    inner = jax.jit(lambda w: norm.logpdf(w - shift).sum())

    @jax.custom_vjp
    def square(w):
        return jnp.sum(w**2)

    square.defvjp(lambda w: (square(w), w), lambda w, by: (2 * pull * by * w,))

    def on_host() -> np.ndarray:
        return np.float32(called)

    def likelihood(z, rows):
        known = jax.pure_callback(on_host, jax.ShapeDtypeStruct((), np.float32), vmap_method="sequential")
        return norm.logpdf(rows["y"], z["w"].sum(), known).sum()

    return isvi.Model({"w": isvi.real(3)}, lambda z: inner(z["w"]) - 0.1 * square(z["w"]), likelihood)


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("model") / "run"
    options = {"algorithm": isvi.SGD(), "budget": 40, "batch_size": 20}
    isvi.fit(model(), {"y": Y}, checkpoint=folder, callbacks=[StopAt(30)], progress=False, **options)
    return folder


def as_of(folder: Path, **changes: object) -> None:
    described = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps({**described, **changes}))


@pytest.mark.parametrize("version", [jax.__version__, "0.8.9"], ids=["same jax", "other jax"])
@pytest.mark.parametrize(
    "other", [{"offset": np.array([0.0, 0.01, 0.0])}, {"pull": 1.1}, {"called": 1.1}], ids=["constant", "rule", "host"]
)
def test_another_model_is_refused(run, version, other):
    as_of(run, jax=version)
    with pytest.raises(isvi.CheckpointError, match="log densities compute something else"):
        isvi.resume(run, model(**other), {"y": Y})


def test_a_small_change_is_seen_in_the_trace(run):
    """One that rounding might hide: only the same version of JAX can tell."""
    as_of(run, jax=jax.__version__)
    with pytest.raises(isvi.CheckpointError, match="log densities compute something else"):
        isvi.resume(run, model(offset=np.array([0.0, 1e-6, 0.0])), {"y": Y})


def test_another_version_of_isvi_is_refused(run):
    version = json.loads((run / "run.json").read_text())["isvi"]
    as_of(run, isvi="0.0.1")
    with pytest.raises(isvi.CheckpointError, match=r"isvi was 0\.0\.1 and is"):
        isvi.resume(run, model(), {"y": Y})
    as_of(run, isvi=version)


def test_the_same_model_goes_on_with_another_version_of_jax(run, caplog):
    as_of(run, jax="0.8.9")
    with caplog.at_level(logging.WARNING, "isvi"):
        assert isvi.resume(run, model(), {"y": Y}, progress=False).gradients == 40
    assert "made with jax 0.8.9" in caplog.text


def test_rounding_is_tolerated_and_nothing_more():
    values = {"log_prior": [[-3.0, 200.0, 0.5], [None, None, None]]}
    slack = TOLERANCE["float32"] * 200.0
    near = {"log_prior": [[-3.0 + 0.9 * slack, 200.0, 0.5 - 0.9 * slack], [None, None, None]]}
    far = {"log_prior": [[-3.0, 200.0, 0.5 + 1.1 * slack], [None, None, None]]}
    infinite = {"log_prior": [[None, 200.0, 0.5], [None, None, None]]}
    assert same_values(near, values, "float32")
    for other in (far, infinite, {"log_prior": values["log_prior"][:1]}, {}, None, {"log_likelihood": []}):
        assert not same_values(other, values, "float32")
