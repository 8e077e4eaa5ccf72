"""NumPyro models: the same density as NumPyro's, cut into prior and likelihood correctly."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers
from numpyro.contrib.control_flow import scan
from numpyro.infer import Predictive, init_to_median, init_to_value
from numpyro.infer.autoguide import (
    AutoDiagonalNormal,
    AutoLowRankMultivariateNormal,
    AutoMultivariateNormal,
    AutoNormal,
)
from numpyro.infer.reparam import LocScaleReparam
from numpyro.infer.util import log_density, potential_energy

import isvi
from isvi.data import Dataset
from isvi.families import approximate
from isvi.fitting.numpyro_svi import SVI
from isvi.model import Bound, bind, make_target

N, J = 23, 3
RNG = np.random.default_rng(0)
DATA = {"x": RNG.normal(size=N), "group": RNG.integers(0, J, size=N), "y": RNG.normal(size=N)}
ROWS = {name: jnp.asarray(column) for name, column in DATA.items()}


def hierarchical(x: Any, group: Any, y: Any = None, plate: Callable | None = None) -> None:
    centre = numpyro.sample("centre", dist.Normal(0, 5))
    spread = numpyro.sample("spread", dist.HalfNormal(2))
    with numpyro.plate("groups", J):
        level = numpyro.sample("level", dist.Normal(centre, spread))
    slope = numpyro.sample("slope", dist.Uniform(-3, 3))
    numpyro.deterministic("double", 2 * slope)
    with (plate or numpyro.plate("rows", len(x))) if not callable(plate) else plate():
        fitted = numpyro.deterministic("fitted", level[group] + slope * x)
        numpyro.sample("y", dist.Normal(fitted, 0.5), obs=y)


def joint_over_mini_batches(bound: Bound, values: dict, batch_size: int = 5) -> tuple[float, float]:
    """The log joint in unconstrained space as the mean over mini-batches (the last one shorter), and at once."""
    dataset = Dataset.from_arrays(bound.data, batch_size)
    target = make_target(bound.model, approximate(isvi.MeanField(), bound.model.latents).coordinates)
    draws = target.coordinates.encode(values)[None]
    value = jax.jit(target.values)  # operation by operation there are hundreds of programs
    parts = [value(draws, dataset.batch(b)) * dataset.batch(b).share for b in range(dataset.num_batches)]
    return float(sum(parts)[0]), float(target.exact_values(draws, dataset)[0])


def values_of(bound: Bound) -> dict:
    def drawn(key: jax.Array) -> dict:
        keys = jax.random.split(key, len(bound.model.latents))
        return {
            name: latent.transform(0.5 * jax.random.normal(key, latent.unconstrained_shape))
            for key, (name, latent) in zip(keys, bound.model.latents.items(), strict=True)
        }

    return jax.jit(drawn)(jax.random.key(1))


def unconstrained(bound: Bound, values: dict) -> dict:
    inverses = {name: latent.transform.inv for name, latent in bound.model.latents.items()}
    return jax.jit(lambda values: {name: inverse(values[name]) for name, inverse in inverses.items()})(values)


def potential(model: Callable, data: dict, values: dict) -> float:
    """NumPyro's potential energy, compiled as one program."""
    return float(jax.jit(lambda values: potential_energy(model, (), data, values))(values))


@pytest.mark.parametrize(
    "plate",
    [
        lambda: numpyro.plate("rows", N),  # all rows, whatever comes
        lambda: numpyro.plate("rows", N, subsample_size=5),
        lambda: handlers.scale(scale=1.0),  # no plate
        None,
    ],
    ids=["all rows", "subsampled", "no plate", "as long as the batch"],
)
def test_density_is_numpyros(plate: Any) -> None:
    """Against NumPyro's potential energy on all rows; never scaled twice."""
    bound = isvi.from_numpyro(hierarchical, plate=plate).bind(DATA, 5)
    values = values_of(bound)
    whole = potential(hierarchical, {**ROWS, "plate": lambda: handlers.scale(scale=1.0)}, unconstrained(bound, values))
    batched, exact = joint_over_mini_batches(bound, values)
    assert batched == pytest.approx(-whole, rel=1e-5)
    assert exact == pytest.approx(-whole, rel=1e-5)


def test_data_bound_to_a_subsampled_plate() -> None:
    def bound_model(x: Any, y: Any) -> None:
        slope = numpyro.sample("slope", dist.Normal(0, 5))
        with numpyro.plate("rows", N, subsample_size=5) as index:
            mean = slope * numpyro.subsample(x, event_dim=0)
            numpyro.sample("y", dist.Normal(mean, 0.5), obs=y[index])

    def plain(x: Any, y: Any) -> None:
        slope = numpyro.sample("slope", dist.Normal(0, 5))
        numpyro.sample("y", dist.Normal(slope * x, 0.5), obs=y)

    bound = isvi.from_numpyro(bound_model, DATA["x"], DATA["y"]).bind()
    assert bound.batch_size == 5
    values = values_of(bound)
    expected = float(log_density(plain, (ROWS["x"], ROWS["y"]), {}, values)[0])
    assert joint_over_mini_batches(bound, values) == (pytest.approx(expected, rel=1e-5),) * 2
    rows = {"rows": jnp.arange(5)}
    program = str(jax.make_jaxpr(bound.model.log_likelihood)(values, rows))
    assert " sort[" not in program, "a permutation of all rows"
    assert "random_bits" not in program


def test_factors_and_observations_are_sorted_by_what_they_depend_on() -> None:
    def model(x: Any, y: Any) -> None:
        slope = numpyro.sample("slope", dist.Normal(0, 1))
        numpyro.factor("soft", -0.5 * (slope - 1) ** 2)  # prior
        numpyro.sample("pseudo", dist.Normal(slope, 2.0), obs=jnp.array(0.3))  # prior
        numpyro.factor("by hand", jnp.sum(dist.Normal(slope * x, 1).log_prob(y)))  # likelihood
        with numpyro.plate("rows", x.shape[0]):
            numpyro.factor("per row", -0.1 * slope**2)  # likelihood: once per row
            with handlers.scale(scale=0.5):
                numpyro.sample("other", dist.Normal(slope, 1), obs=y)  # likelihood, with the user's scale

    rows = {"x": DATA["x"], "y": DATA["y"]}
    bound = isvi.from_numpyro(model).bind(rows, 5)
    values = values_of(bound)
    expected = float(log_density(model, (), {name: ROWS[name] for name in rows}, values)[0])
    assert joint_over_mini_batches(bound, values) == (pytest.approx(expected, rel=1e-5),) * 2
    alone = bound.model.log_prior(values)
    slope = values["slope"]
    by_hand = dist.Normal(0, 1).log_prob(slope) - 0.5 * (slope - 1) ** 2 + dist.Normal(slope, 2).log_prob(0.3)
    assert float(alone) == pytest.approx(float(by_hand), rel=1e-5)


def test_reparameterized_and_moving_supports() -> None:
    def model(x: Any, group: Any, y: Any = None) -> None:
        top = numpyro.sample("top", dist.LogNormal(0, 1))
        numpyro.sample("below", dist.Uniform(0, top))
        numpyro.sample("flat", dist.ImproperUniform(dist.constraints.real, (), ()))
        hierarchical(x, group, y)

    model = handlers.reparam(model, config={"level": LocScaleReparam(0)})
    bound = isvi.from_numpyro(model).bind(DATA, 5)
    assert "level_decentered" in bound.model.latents
    assert "level" not in bound.model.latents
    values = values_of(bound)
    raw = {name.removesuffix("_unconstrained"): value for name, value in unconstrained(bound, values).items()}
    whole = -potential(model, ROWS, raw)
    assert joint_over_mini_batches(bound, values) == (pytest.approx(whole, rel=1e-5),) * 2
    shown = bound.model.report({name: value[None] for name, value in values.items()})
    assert 0 < shown["below"][0] < shown["top"][0]
    assert shown["level"].shape == (1, J)
    assert shown["double"][0] == pytest.approx(2 * float(values["slope"]))
    assert "fitted" not in shown  # an entry per row


def test_latents_per_row_need_all_rows() -> None:
    def model(y: Any) -> None:
        with numpyro.plate("rows", y.shape[0]):
            level = numpyro.sample("level", dist.Normal(0, 1))
            numpyro.sample("y", dist.Normal(level, 1), obs=y)

    with pytest.raises(isvi.ModelError, match="'level' depends on the rows"):
        isvi.from_numpyro(model).bind({"y": DATA["y"]}, 5)
    bound = isvi.from_numpyro(model).bind({"y": DATA["y"]}, None)
    assert bound.batch_size == N
    assert bound.model.latents["level"].shape == (N,)


def test_priors_computed_from_rows_need_all_rows() -> None:
    def model(y: Any) -> None:
        mean = numpyro.sample("mean", dist.Normal(0, y.std()))
        numpyro.sample("y", dist.Normal(mean, 1), obs=y)

    with pytest.raises(isvi.ModelError, match=r"'mean' depends on the rows.*computed from the data"):
        isvi.from_numpyro(model).bind({"y": DATA["y"]}, 5)
    bound = isvi.from_numpyro(model).bind({"y": DATA["y"]}, N)
    values = {"mean": jnp.array(0.2)}
    expected = float(log_density(model, (), {"y": ROWS["y"]}, values)[0])
    assert joint_over_mini_batches(bound, values, N)[1] == pytest.approx(expected, rel=1e-5)


def discrete(y: Any) -> None:
    kind = numpyro.sample("kind", dist.Bernoulli(0.5))
    numpyro.sample("y", dist.Normal(kind, 1), obs=y)


def with_param(y: Any) -> None:
    numpyro.sample("mean", dist.Normal(numpyro.param("centre", 0.0), 1))
    numpyro.sample("y", dist.Normal(0, 1), obs=y)


def unobserved(y: Any) -> None:
    numpyro.sample("mean", dist.Normal(0, 1))


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (discrete, "no continuous latent sites"),
        (with_param, "numpyro.param\\('centre'\\)"),
        (unobserved, "No observed site"),
        (lambda y: numpyro.sample("y", dist.Normal(0, 1), obs=y), "no continuous latent sites"),
    ],
)
def test_refused_with_advice(model: Callable, message: str) -> None:
    with pytest.raises(isvi.ModelError, match=message):
        isvi.from_numpyro(model).bind({"y": DATA["y"]})


def test_two_subsampled_plates_are_refused() -> None:
    def model() -> None:
        numpyro.sample("mean", dist.Normal(0, 1))
        for name in ("a", "b"):
            with numpyro.plate(name, 10, subsample_size=2):
                numpyro.sample(f"{name}_obs", dist.Normal(0, 1), obs=jnp.zeros(2))

    with pytest.raises(isvi.ModelError, match="\\['a', 'b'\\]"):
        isvi.from_numpyro(model).bind()


def test_fit_and_predict() -> None:
    fit = isvi.fit(isvi.from_numpyro(hierarchical), DATA, batch_size=10, algorithm=isvi.ISGD(), budget=200)
    assert list(fit.sample(3)) == ["centre", "spread", "level", "slope", "double"]
    assert "double" in fit.to_datatree(10)["posterior"]
    inside = fit.predict(num_samples=4)
    assert inside["y"].shape == inside["fitted"].shape == (4, N)
    assert not np.allclose(inside["y"][0], DATA["y"])
    new = fit.predict({"x": np.zeros(2), "group": np.array([0, 1])}, num_samples=4)
    assert new["y"].shape == (4, 2)
    draws = fit.sample(4)
    np.testing.assert_allclose(new["fitted"], draws["level"][:, :2], rtol=1e-5)
    same = fit.predict(num_samples=4)
    np.testing.assert_array_equal(inside["y"], same["y"])


def test_tuples_become_positional_arguments() -> None:
    bound = isvi.from_numpyro(hierarchical).bind((DATA["x"], DATA["group"], DATA["y"]), 5)
    named = isvi.from_numpyro(hierarchical).bind(DATA, 5)
    values = values_of(bound)
    assert joint_over_mini_batches(bound, values) == pytest.approx(joint_over_mini_batches(named, values))


@pytest.mark.parametrize("kind", [AutoNormal, AutoDiagonalNormal, AutoMultivariateNormal])
def test_svi_gives_parameters_for_the_guide(kind: Any) -> None:
    """The guide with these parameters is the fitted approximation: 4,000 draws, means within 5 standard errors."""
    guide = kind(hierarchical)
    svi = SVI(hierarchical, guide, algorithm=isvi.ISGD())
    result = svi.run(jax.random.key(0), 300, *(DATA[name] for name in ("x", "group", "y")), progress_bar=False)
    posterior = guide.sample_posterior(jax.random.key(1), result.params, sample_shape=(4000,))
    for name in ("centre", "spread", "level", "slope"):
        error = 5 * result.fit.sd()[name] / np.sqrt(4000)
        assert np.all(np.abs(posterior[name].mean(0) - result.fit.mean()[name]) < 2 * error), name
        np.testing.assert_allclose(posterior[name].std(0), result.fit.sd()[name], rtol=0.15)
    drawn = Predictive(hierarchical, guide=guide, params=result.params, num_samples=3)
    assert drawn(jax.random.key(2), ROWS["x"], ROWS["group"])["y"].shape == (3, N)
    assert len(result.losses) == len(result.fit.history)


def test_svi_refuses_other_guides() -> None:
    with pytest.raises(isvi.ConfigurationError, match="AutoLowRankMultivariateNormal"):
        SVI(hierarchical, AutoLowRankMultivariateNormal(hierarchical))


def test_plain_models_pass_through() -> None:
    model = isvi.Model({"a": isvi.real()}, lambda z: -(z["a"] ** 2))
    assert bind(model, None, None) == Bound(model, None, None)


def test_numpyros_strategies_say_where_to_start() -> None:
    def model(y: Any) -> None:
        top = numpyro.sample("top", dist.LogNormal(0, 0.1))
        numpyro.sample("below", dist.Uniform(0, top))
        with numpyro.plate("rows", len(y)):
            numpyro.sample("y", dist.Normal(top, 1), obs=y)

    bound = isvi.from_numpyro(model).bind({"y": DATA["y"]}).model
    assert bound.initial is not None
    assert bound.initial(None) == {}
    named = bound.initial(init_to_value(values={"top": 4.0, "below": 1.0}))
    assert named["top"] == 4.0
    assert float(named["below_unconstrained"]) == pytest.approx(np.log(0.25 / 0.75), rel=1e-5)
    values = bound.initial({"top": 4.0, "below": 1.0})
    assert values["top"] == 4.0
    assert float(values["below_unconstrained"]) == pytest.approx(np.log(0.25 / 0.75), rel=1e-5)
    assert bound.initial({"below_unconstrained": 0.3}) == {"below_unconstrained": 0.3}
    # The median of 15 draws of a log-normal of width 0.1 is within 6 of its sds, 0.03, of 1.
    assert float(bound.initial(init_to_median())["top"]) == pytest.approx(1.0, abs=0.2)
    assert float(bound.initial(init_to_median)["top"]) == pytest.approx(1.0, abs=0.2)
    fit = isvi.fit(
        isvi.from_numpyro(model), {"y": DATA["y"]}, initial=init_to_value(values={"top": 4.0}), budget=2, progress=False
    )
    assert fit.mean()["top"] == pytest.approx(4.0, rel=0.5)
    guide = AutoNormal(model, init_loc_fn=init_to_value(values={"top": 4.0, "below": 1.0}))
    svi = SVI(model, guide)
    assert svi._options["initial"] is guide.init_loc_fn
    assert "initial" not in SVI(model, AutoNormal(model))._options


def test_verdicts_are_about_what_the_user_wrote() -> None:
    """Not about the helper of a latent whose support moves, whose tails may be anything."""

    def model() -> None:
        top = numpyro.sample("top", dist.LogNormal(0, 0.1))
        numpyro.deterministic("half", top / 2)
        numpyro.sample("below", dist.Uniform(0, top))

    fit = isvi.fit(isvi.from_numpyro(model), budget=40, progress=False)
    assert fit.diagnose(100).entries.names == ["top", "below"]


def test_predictors_on_raw_scales_may_overflow_on_the_way() -> None:
    x = 1e4 * np.random.default_rng(0).normal(size=200)

    def model(x: Any, y: Any) -> None:
        slope = numpyro.sample("slope", dist.Normal(0, 1e-3))
        with numpyro.plate("rows", len(x)):
            numpyro.sample("y", dist.Gamma(2.0, 2.0 * jnp.exp(-slope * x)), obs=y)

    y = np.random.default_rng(1).gamma(2.0, 0.5 * np.exp(3e-5 * x))
    fit = isvi.fit(isvi.from_numpyro(model), {"x": x, "y": y}, progress=False)
    assert fit.status.kind == "converged"
    # The information is 2 x'x: an sd of 5e-6; a false failure is beyond five of them.
    assert fit.mean()["slope"] == pytest.approx(3e-5, abs=2.5e-5)


def test_other_models_take_values_only() -> None:
    plain = isvi.Model({"a": isvi.real()}, lambda z: -0.5 * z["a"] ** 2)
    with pytest.raises(isvi.ConfigurationError, match="initial must be a dict"):
        isvi.fit(plain, initial=init_to_median())


@pytest.mark.parametrize(
    "count",
    [lambda group: len(np.unique(group)), lambda group: int(max(group)) + 1, lambda group: group[group > 1].size],
)
def test_numbers_that_are_not_known_yet_are_to_be_bound(count: Callable) -> None:
    def model(group: Any, y: Any = None, num_groups: int | None = None) -> None:
        with numpyro.plate("groups", num_groups or count(group)):
            level = numpyro.sample("level", dist.Normal(0, 1))
        numpyro.sample("y", dist.Normal(level[0], 1), obs=y)

    data = {"group": np.sort(DATA["group"]), "y": DATA["y"]}
    with pytest.raises(isvi.ModelError, match=r"np.unique(?s:.*)bind it in from_numpyro"):
        isvi.fit(isvi.from_numpyro(model), data)
    fit = isvi.fit(isvi.from_numpyro(model, num_groups=J), data, budget=4, progress=False)
    assert fit.mean()["level"].shape == (J,)


def test_numbers_of_bound_arrays_are_known() -> None:
    """As with NumPyro's samplers: ``int(np.max(group)) + 1`` of what was bound, also where JAX compiles."""

    def model(group: Any, names: Any, y: Any = None) -> None:
        assert names[0] == "a"
        with numpyro.plate("groups", int(np.max(group)) + 1):
            level = numpyro.sample("level", dist.Normal(0, 1))
        numpyro.deterministic("top", level.max())
        with numpyro.plate("rows", len(group)):
            numpyro.sample("y", dist.Normal(level[group], 1), obs=y)

    names = np.array(["a", "b"])
    fit = isvi.fit(isvi.from_numpyro(model, DATA["group"], names, y=DATA["y"]), budget=4, progress=False)
    assert fit.mean()["level"].shape == (J,)
    assert fit.predict(num_samples=3)["y"].shape == (3, N)


def test_sites_with_one_value_are_no_latents() -> None:
    """A Delta, and a param with a value: constants, the latter reported."""

    def model(y: Any) -> None:
        scale = numpyro.sample("scale", dist.Delta(2.0).expand([1]).to_event(1))
        shift = numpyro.param("shift", 0.0)
        mean = numpyro.sample("mean", dist.Normal(shift, scale[0]))
        numpyro.sample("y", dist.Normal(mean, 1), obs=y)

    with pytest.raises(isvi.ModelError, match=r"numpyro.param\('shift'\)(?s:.*)handlers.substitute"):
        isvi.from_numpyro(model).bind({"y": DATA["y"]})
    given = handlers.substitute(model, data={"shift": 0.5})
    bound = isvi.from_numpyro(given).bind({"y": DATA["y"]}).model
    assert list(bound.latents) == ["mean"]
    density = float(bound.log_prior({"mean": jnp.array(0.3)}))
    assert density == pytest.approx(float(dist.Normal(0.5, 2.0).log_prob(0.3)), rel=1e-5)
    assert bound.report is not None
    assert float(bound.report({"mean": jnp.zeros(2)})["shift"][1]) == 0.5


def test_masked_observations_with_latents_for_all_rows_are_refused() -> None:
    def model(y: Any) -> None:
        mean = numpyro.sample("mean", dist.Normal(0, 1))
        with numpyro.plate("rows", len(y)):
            numpyro.sample("y", dist.Normal(mean, 1), obs=y, obs_mask=~jnp.isnan(y))

    with pytest.raises(isvi.ModelError, match=r"'y' has an obs_mask(?s:.*)handlers.mask"):
        isvi.from_numpyro(model).bind({"y": DATA["y"]})


def test_forecasts_are_evaluated_in_double_precision() -> None:
    """A series that is conditioned on its past, and goes on: next to draws of the future in double precision, numbers
    of the data in single precision would clash."""

    def smoothing(y: Any, future: int = 0) -> None:
        rate = numpyro.sample("rate", dist.Beta(1, 1))
        start = numpyro.sample("start", dist.Normal(0, 1))

        def step(level: Any, t: Any) -> tuple[Any, Any]:
            seen = numpyro.sample("seen", dist.Normal(level, 0.5))
            return jnp.where(t < len(y), level + rate * (y[t] - level), level), seen

        with handlers.condition(data={"seen": y}):
            _, seen = scan(step, start, jnp.arange(len(y) + future))
        if future:
            numpyro.deterministic("forecast", seen[-future:])

    fit = isvi.fit(isvi.from_numpyro(smoothing, DATA["y"], future=4), budget=200, progress=False)
    assert np.isfinite(fit.diagnose(100).elbo.value)


def test_deterministic_sites_do_not_count_in_the_verdict() -> None:
    """The reciprocal of a normal variable around 0 has no mean; the variable itself is fitted exactly."""

    def model(y: Any) -> None:
        mean = numpyro.sample("mean", dist.Normal(0, 1))
        numpyro.deterministic("reciprocal", 1 / mean)
        with numpyro.plate("rows", len(y)):
            numpyro.sample("y", dist.Normal(mean, 1), obs=y)

    fit = isvi.fit(isvi.from_numpyro(model), {"y": np.zeros(3)}, progress=False)
    found = fit.diagnose()
    assert found.verdict == "good", str(found)
    assert found.entries.names == ["mean"]
    assert "reciprocal" in fit.mean()


def test_plates_and_observed_data_are_in_the_tree() -> None:
    fit = isvi.fit(isvi.from_numpyro(hierarchical), DATA, batch_size=5, budget=4, progress=False)
    tree = fit.to_datatree(num_samples=7)
    assert tree.posterior["level"].dims == ("chain", "draw", "groups")
    assert tree.posterior["slope"].dims == ("chain", "draw")
    assert tree.observed_data["y"].dims == ("rows",)
    np.testing.assert_allclose(tree.observed_data["y"], DATA["y"], rtol=1e-6)

    def vectors(y: Any) -> None:
        with numpyro.plate("pairs", 3):
            pair = numpyro.sample("pair", dist.Dirichlet(jnp.ones(2)))
        numpyro.factor("soft", -jnp.sum(pair**2))
        numpyro.sample("y", dist.Normal(pair[0, 0], 1).expand([len(y)]), obs=y)

    tree = isvi.fit(isvi.from_numpyro(vectors, DATA["y"]), budget=4, progress=False).to_datatree(num_samples=7)
    assert tree.posterior["pair"].dims == ("chain", "draw", "pairs", "pair_dim_1")
    assert list(tree.observed_data) == ["y"]


def lagged(x: Any, y: Any) -> None:
    slope = numpyro.sample("slope", dist.Normal(0, 1))
    numpyro.sample("y", dist.Normal(slope * y[:-1], 1), obs=y[1:])


def scanned(x: Any, y: Any) -> None:
    slope = numpyro.sample("slope", dist.Normal(0, 1))

    def step(before: Any, now: Any) -> tuple[Any, None]:
        numpyro.sample("y", dist.Normal(slope * before, 1), obs=now)
        return now, None

    scan(step, jnp.zeros_like(slope), y)


def smooth(x: Any, y: Any) -> None:
    length = numpyro.sample("length", dist.LogNormal(0, 1))
    covariance = jnp.exp(-((x[:, None] - x) ** 2) / length) + 0.1 * jnp.eye(len(x))
    numpyro.sample("y", dist.MultivariateNormal(jnp.zeros(len(x)), covariance), obs=y)


def straight(x: Any, y: Any) -> None:
    slope = numpyro.sample("slope", dist.Normal(0, 1))
    with numpyro.plate("rows", len(x)):
        numpyro.sample("y", dist.Normal(slope * x, 1), obs=y)


def picked() -> None:
    slope = numpyro.sample("slope", dist.Normal(0, 1))
    with numpyro.plate("rows", N, subsample_size=6) as index:
        numpyro.sample("y", dist.Normal(slope * ROWS["x"][index], 1), obs=ROWS["y"][index])


@pytest.mark.parametrize(("model", "batches"), [(lagged, 1), (scanned, 1), (smooth, 1), (straight, 4), (picked, 4)])
def test_rows_that_depend_on_each_other_are_not_cut(model: Callable, batches: int) -> None:
    data = {} if model is picked else {"data": {"x": DATA["x"], "y": DATA["y"]}, "batch_size": 6}
    fit = isvi.fit(isvi.from_numpyro(model), **data, budget=4, progress=False)
    assert fit.dataset.num_batches == batches


def test_a_model_that_looks_at_what_it_was_bound_to_can_be_diagnosed() -> None:
    """The diagnosis is in double precision: what is bound is converted, and must stay an array that NumPy can take."""

    def model(x, y=None):
        mean = numpyro.sample("mean", dist.Normal(0, 10))
        numpyro.sample("y", dist.Normal(mean + np.nanmean(np.asarray(x)), 1), obs=y)

    x, y = jnp.array([1.0, 2.0, np.nan]), jnp.array([1.0, 2.0, 3.0])
    fit = isvi.fit(isvi.from_numpyro(model, x, y=y), progress=False)
    assert fit.diagnose(300).verdict == "good"
    assert fit.mean()["mean"] == pytest.approx(0.5, abs=0.1)
