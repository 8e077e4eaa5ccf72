"""PyMC models: the same density as PyMC's, its names and transforms, and the way back."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import isvi
from isvi.data import Dataset
from isvi.families import approximate
from isvi.frontends.pymc.graphs import without_properties
from isvi.model import make_target

pm = pytest.importorskip("pymc", reason="PyMC is not installed: pip install 'isvi[pymc]'")
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::UserWarning")

N = 23
RNG = np.random.default_rng(0)
X, GROUP, Y = RNG.normal(size=N), RNG.integers(0, 3, size=N), RNG.normal(size=N)


@pytest.fixture(scope="module")
def regression() -> Any:
    with pm.Model(coords={"group": ["a", "b", "c"]}) as model:
        x, group, y = pm.Data("x", X), pm.Data("member", GROUP), pm.Data("outcome", Y)
        offset = pm.Data("offset", 0.5)  # not per row
        centre = pm.Normal("centre", offset, 5)
        spread = pm.HalfNormal("spread", 2)
        level = pm.Normal("level", centre, spread, dims="group")
        pm.Uniform("below", 0, spread)  # a support that moves
        pm.Dirichlet("mix", np.ones(3))
        slope = pm.Uniform("slope", -3, 3)
        pm.Deterministic("double", 2 * slope)
        pm.Potential("soft", -0.5 * slope**2)
        fitted = pm.Deterministic("fitted", level[group] + slope * x)
        pm.Normal("y", fitted, 0.5, observed=y)
    return model


def test_density_is_pymcs_over_mini_batches(regression: Any) -> None:
    """In the same unconstrained space, in float64; the last mini-batch is shorter."""
    x64 = jax.config.jax_enable_x64
    bound = isvi.from_pymc(regression).bind(None, 5)
    assert jax.config.jax_enable_x64 == x64, "exporting must not switch JAX's precision"
    assert sorted(bound.data) == ["member", "outcome", "x"]
    names = ["centre", "spread", "level", "below_interval__", "mix", "slope"]
    assert list(bound.model.latents) == names
    with jax.enable_x64(True):
        target = make_target(bound.model, approximate(isvi.MeanField(), bound.model.latents).coordinates)
        z = 0.5 * jax.random.normal(jax.random.key(0), (1, target.coordinates.size), dtype=jnp.float64)
        point = {
            regression.rvs_to_values[rv].name: np.asarray(z[0, entry.start : entry.stop]).reshape(entry.shape)
            for rv, entry in zip(regression.free_RVs, target.coordinates.entries, strict=True)
        }
        dataset = Dataset.from_arrays(bound.data, 5)
        parts = [target.values(z, dataset.batch(b)) * dataset.batch(b).share for b in range(dataset.num_batches)]
        expected = float(regression.compile_logp()(point))
        assert float(sum(parts)[0]) == pytest.approx(expected, rel=1e-6)
        assert float(target.exact_values(z, dataset)[0]) == pytest.approx(expected, rel=1e-6)
        values, _ = target.coordinates.decode(z[0])
        np.testing.assert_allclose(target.coordinates.encode(values), z[0], rtol=1e-6, atol=1e-9)


def test_result_goes_back_to_pymc(regression: Any) -> None:
    from isvi.frontends.pymc import as_trace

    fit = isvi.fit(isvi.from_pymc(regression), batch_size=10, algorithm=isvi.ISGD(), budget=100)
    tree = fit.to_datatree(20)
    assert tree["posterior"]["level"].dims == ("chain", "draw", "group")
    assert {"below", "double"} <= set(tree["posterior"].data_vars)
    assert "fitted" not in tree["posterior"]
    assert set(tree.children) == {"posterior", "constant_data", "observed_data"}
    with regression:
        predicted = pm.sample_posterior_predictive(as_trace(tree), random_seed=0, progressbar=False)
    assert predicted["posterior_predictive"]["y"].shape == (1, 20, N)
    assert fit.predict(num_samples=4)["y"].shape == (4, N)
    new = fit.predict({"x": np.zeros(2), "member": np.array([0, 1]), "outcome": np.zeros(2)}, num_samples=400)
    assert new["y"].shape == (400, 2)
    np.testing.assert_array_equal(regression["x"].get_value(), X)
    # The levels are those of the posterior, not drawn anew: predictions average to them.
    levels = fit.sample(400)["level"][:, :2].mean(axis=0)
    np.testing.assert_allclose(new["y"].mean(axis=0), levels, atol=5 * 0.5 / np.sqrt(400))


def test_plain_observations_are_used_at_once() -> None:
    with pm.Model() as model:
        mean = pm.Normal("mean")
        pm.Normal("y", mean, 1, observed=Y)
    bound = isvi.from_pymc(model).bind()
    assert bound.data is None
    expected = float(model.compile_logp()({"mean": np.array(0.3)}))
    assert float(bound.model.log_prior({"mean": jnp.array(0.3)})) == pytest.approx(expected, rel=1e-5)
    with pytest.raises(isvi.ConfigurationError, match=r"pm\.Data"):
        isvi.from_pymc(model).bind(None, 5)


def test_variables_per_row_need_all_rows() -> None:
    with pm.Model() as model:
        y = pm.Data("outcome", Y)
        level = pm.Normal("level", shape=N)
        pm.Normal("y", level, 1, observed=y)
    with pytest.raises(isvi.ModelError, match="cannot be cut"):
        isvi.from_pymc(model).bind(None, 5)
    assert isvi.from_pymc(model).bind().batch_size == N


def test_ops_are_named_without_their_properties() -> None:
    message = "No JAX conversion for the given `Op`: DifferentialEquation{times=(0.5, 1.0)}\nfor help, see"
    assert without_properties(message) == "No JAX conversion for the given `Op`: DifferentialEquation"


def test_refused_with_advice() -> None:
    with pm.Model() as model:
        kind = pm.Bernoulli("kind", 0.5)
        pm.Normal("y", kind, 1, observed=Y)
    with pytest.raises(isvi.ModelError, match=r"\['kind'\].*pm.Mixture"):
        isvi.from_pymc(model).bind()
    with pytest.raises(isvi.ConfigurationError, match=r"needs a pm\.Model"):
        isvi.from_pymc(object())
    with pytest.raises(isvi.ConfigurationError, match="set_data"):
        isvi.from_pymc(model).bind({"y": Y})
    with pytest.raises(isvi.ConfigurationError, match=r"No pm\.Data containers"):
        isvi.from_pymc(model, data=["nothing"]).bind()


def test_initial_values_are_where_the_fit_starts() -> None:
    """Numbers and words, of variables with and without a transform, and with a moving support."""
    with pm.Model() as model:
        centre = pm.Normal("centre", 0, 5, initval=3.0)
        scale = pm.HalfNormal("scale", 1, initval=0.2)
        pm.Uniform("below", 0, scale, initval=0.15)
        pm.Dirichlet("shares", np.ones(3), initval=np.array([0.2, 0.3, 0.5]))
        pm.HalfNormal("drawn", 1, initval="prior")
        pm.Exponential("open", 1)
        pm.Normal("y", centre, scale, observed=np.linspace(-1, 1, 10))
    bound = isvi.from_pymc(model).bind().model
    initial = bound.initial(None)
    assert set(initial) == {"centre", "scale", "below_interval__", "shares", "drawn"}
    assert initial["centre"] == pytest.approx(3.0)
    assert initial["scale"] == pytest.approx(0.2)
    assert initial["shares"] == pytest.approx([0.2, 0.3, 0.5])
    assert initial["below_interval__"] == pytest.approx(np.log(0.15 / 0.05), rel=1e-5)
    assert bound.initial({"centre": -1.0})["centre"] == -1.0
    assert model.rvs_to_initial_values[model["centre"]] == 3.0, "the model stays as it was"
    fit = isvi.fit(isvi.from_pymc(model), budget=2, progress=False)
    assert fit.mean()["centre"] == pytest.approx(3.0, abs=1.0)


def test_pymcs_own_mini_batches_and_simulators_are_refused_with_advice() -> None:
    x = np.linspace(-1, 1, 100)
    with pm.Model() as minibatch:
        some_x, some_y = pm.Minibatch(x, 2 * x, batch_size=10)
        pm.Normal("y", pm.Normal("slope", 0, 5) * some_x, 1, observed=some_y, total_size=100)
    with pytest.raises(isvi.ModelError, match=r"\['y'\](?s:.*)pm.Minibatch(?s:.*)pm.Data\('x', x\)"):
        isvi.from_pymc(minibatch).bind()
    with pm.Model() as simulator:
        mean = pm.Normal("mean", 0, 5)
        pm.Simulator("s", lambda rng, mean, size=None: rng.normal(mean, 1, size=100), mean, observed=x)
    with pytest.raises(isvi.ModelError, match=r"pm.Simulator(?s:.*)isvi.from_gradient"):
        isvi.from_pymc(simulator).bind()


def test_a_black_box_names_the_other_door() -> None:
    import pytensor.tensor as pt
    from pytensor.graph.basic import Apply
    from pytensor.graph.op import Op

    class Box(Op):
        def make_node(self, value: Any) -> Apply:
            return Apply(self, [pt.as_tensor(value)], [pt.dscalar()])

        def perform(self, node: Any, inputs: Any, outputs: Any) -> None:
            outputs[0][0] = np.array(float((inputs[0] ** 2).sum()))

    with pm.Model() as model:
        pm.Potential("density", -Box()(pm.Normal("mean", 0, 5)))
    with pytest.raises(isvi.ModelError, match=r"exported to JAX(?s:.*)Box(?s:.*)isvi.from_gradient"):
        isvi.from_pymc(model).bind()


@pytest.mark.parametrize("dependent", [True, False])
def test_series_are_noticed(dependent: bool) -> None:
    noise = np.random.default_rng(0).normal(size=300)
    with pm.Model() as model:
        y = pm.Data("y", noise)
        slope = pm.Normal("slope", 0, 1)
        if dependent:
            pm.AR("series", rho=[slope], sigma=1.0, init_dist=pm.Normal.dist(0, 1), observed=y)
        else:
            pm.Normal("series", slope, 1.0, observed=y)
    fit = isvi.fit(isvi.from_pymc(model), batch_size=50, budget=4, progress=False)
    assert fit.dataset.num_batches == (1 if dependent else 6)


@pytest.mark.parametrize(("bounded", "far"), [(pm.Censored, 20.0), (pm.Truncated, 5.0)])
def test_censored_and_truncated_normals(bounded: Any, far: float) -> None:
    """The same density and gradient as PyMC's, near and in the tails: beyond, a truncation on both sides has none."""
    y = np.clip(np.linspace(-2, 3, 12), -1, 2)
    with pm.Model() as model:
        centre, scale = pm.Normal("centre", 0, 5), pm.HalfNormal("scale", 5)
        bounded("y", pm.Normal.dist(centre, scale), lower=-1, upper=2, observed=y)
    log_density = isvi.from_pymc(model).bind().model.log_prior
    theirs, slopes = model.compile_logp(jacobian=False), model.compile_dlogp(jacobian=False)
    for at in (0.3, -far, far):
        point = {"centre": np.array(at), "scale_log__": np.log(1.5)}
        values = {"centre": jnp.float32(at), "scale": jnp.float32(1.5)}
        value, gradient = jax.value_and_grad(log_density)(values)
        assert value == pytest.approx(float(theirs(point)), rel=1e-5)
        expected = slopes(point)  # with respect to log(scale)
        assert gradient["centre"] == pytest.approx(expected[0], rel=1e-3)
        assert gradient["scale"] * 1.5 == pytest.approx(expected[1], rel=1e-3)


@pytest.mark.filterwarnings("ignore:Scan return signature:DeprecationWarning")
def test_what_jax_cannot_differentiate_is_said() -> None:
    with pm.Model() as model:
        mean, size = pm.HalfNormal("mean", 5), pm.HalfNormal("size", 5)
        pm.Truncated("y", pm.NegativeBinomial.dist(mu=mean, alpha=size), lower=1, observed=np.arange(1, 9))
    with pytest.raises(isvi.ModelError, match=r"cannot differentiate(?s:.*)Betainc(?s:.*)isvi.from_gradient"):
        isvi.fit(isvi.from_pymc(model), budget=4, progress=False)


def test_probits_have_a_gradient_everywhere() -> None:
    """log(erfc(x)) next to 0, and on either side as far as single precision holds a probability."""
    x = np.array([1e-9, -1e-9, 0.3, -8.0, 8.0, 0.0])
    with pm.Model() as model:
        slope = pm.Normal("slope", 0, 5)
        pm.Potential("probit", pm.math.log(pm.math.invprobit(slope * x)).sum())
        pm.SkewNormal("y", alpha=slope, mu=0, sigma=1, observed=x)
    log_density = isvi.from_pymc(model).bind().model.log_prior
    theirs, slopes = model.compile_logp(), model.compile_dlogp()
    for at in (0.0, 1e-3, 0.7, -0.9):
        value, gradient = jax.value_and_grad(log_density)({"slope": jnp.float32(at)})
        assert value == pytest.approx(float(theirs({"slope": at})), rel=1e-5)
        assert gradient["slope"] == pytest.approx(slopes({"slope": at})[0], rel=1e-3)


def test_latents_of_groups_are_refused_with_what_to_do(regression: Any) -> None:
    with pytest.raises(isvi.ConfigurationError, match=r"dimension 'group' cannot be integrated out.*from_numpyro"):
        isvi.from_pymc(regression, local="group")
