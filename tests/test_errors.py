"""Bad input gets a clear error: the right type, and words that say what was expected, what came and what to do."""

import re
from typing import Any

import jax.numpy as jnp
import numpy as np
import optax
import pytest
from numpyro.distributions import constraints

import isvi
from isvi import families

OPTIONS: dict[str, Any] = {"algorithm": isvi.SGD(), "optimizer": optax.sgd(0.01), "budget": 10}


def prior(z):
    return -0.5 * jnp.sum(z["w"] ** 2)


def likelihood(z, rows):
    return -0.5 * jnp.sum((rows["y"] - z["w"]) ** 2)


def model(**changes) -> isvi.Model:
    return isvi.Model(**{"latents": {"w": isvi.real()}, "log_prior": prior, "log_likelihood": likelihood} | changes)


def fit(model: Any = None, data: Any = None, **options):
    data = {"y": np.arange(5.0)} if data is None else data
    return isvi.fit(model or globals()["model"](), data, **(OPTIONS | options))


def says(*parts: str) -> str:
    """A pattern: all parts, in this order."""
    return "(?s)" + ".*".join(re.escape(part) for part in parts)


DATA = {
    "nan": ({"y": [0.0, 1.0, np.nan, np.nan]}, says("data['y']", "nan", "row 2", "2 non-finite", "Drop or impute")),
    "infinity": ({"x": np.zeros((3, 2)), "y": [0, np.inf, 0]}, says("data['y']", "inf", "row 1", "Drop or impute")),
    "nan in a matrix": (
        {"y": np.array([[0, 1], [2, np.nan]])},
        says("data['y']", "row 1", "index [1, 1]", "1 non-finite"),
    ),
    "different lengths": (
        {"x": np.zeros(3), "y": np.zeros(4)},
        says("same number of rows", "data['x']: 3", "data['y']: 4", "belong in the model"),
    ),
    "no rows": ({"y": np.zeros(0)}, says("empty", "0 rows")),
    "no arrays": ({}, says("empty", "no arrays", "Pass None")),
    "strings": ({"y": ["a", "b"]}, says("data['y']", "numbers or booleans", "dtype <U1", "Encode")),
    "scalar": ({"y": 3.0}, says("data['y']", "array with rows", "scalar 3.0")),
    "ragged": ({"y": [[1.0], [1.0, 2.0]]}, says("data['y']", "rows of equal shape")),
    "huge integers": ({"y": np.array([2**40])}, says("data['y']", "range of int32", "64 bits")),
    "huge floats": ({"y": np.array([1e200])}, says("data['y']", "too large for float32", "1e+200", "64 bits")),
}


@pytest.mark.filterwarnings("ignore:overflow encountered in cast")
@pytest.mark.parametrize("case", DATA)
def test_data(case):
    data, words = DATA[case]
    with pytest.raises(isvi.DataError, match=words):
        isvi.fit(model(), data, **OPTIONS)


@pytest.mark.parametrize("batch_size", [0, -1, 6, 2.5])
def test_batch_size(batch_size):
    with pytest.raises(isvi.ConfigurationError, match=says("between 1 and", "rows, 5", f"got {batch_size}")):
        fit(batch_size=batch_size)


def test_batch_size_without_data():
    with pytest.raises(isvi.ConfigurationError, match="no data to batch"):
        isvi.fit(model(log_likelihood=None), batch_size=3, **OPTIONS)


def test_data_without_likelihood_and_likelihood_without_data():
    with pytest.raises(isvi.ConfigurationError, match="no log_likelihood to use it"):
        fit(model(log_likelihood=None))
    with pytest.raises(isvi.ConfigurationError, match=says("no data was given", "isvi.fit(model, data)")):
        isvi.fit(model(), **OPTIONS)


TWO = {"w": isvi.real(), "v": isvi.real()}
MODELS = {
    "latent without a prior": (
        {"latents": TWO, "log_likelihood": lambda z, rows: likelihood(z, rows) + z["v"]},
        says("log_prior does not use latent 'v'", "flat_prior=True"),
    ),
    "latent not used at all": ({"latents": TWO}, says("latent 'v' is used by neither", "remove it")),
    "unknown latent in the prior": (
        {"log_prior": lambda z: z["tau"]},
        says("log_prior asks for 'tau'", "latents are ['w']"),
    ),
    "unknown latent in the likelihood": (
        {"log_likelihood": lambda z, rows: z["tau"]},
        says("log_likelihood asks for 'tau'", "latents are ['w']", "columns ['y']"),
    ),
    "unknown column": (
        {"log_likelihood": lambda z, rows: rows["price"].sum()},
        says("log_likelihood asks for 'price'", "columns ['y']"),
    ),
    "likelihood per row": (
        {"log_likelihood": lambda z, rows: -((rows["y"] - z["w"]) ** 2)},
        says("log_likelihood must return a scalar", "shape (5,)", "jnp.sum"),
    ),
    "prior per entry": (
        {"latents": {"w": isvi.real(3)}, "log_prior": lambda z: -(z["w"] ** 2)},
        says("log_prior must return a scalar", "shape (3,)"),
    ),
    "tuple": ({"log_prior": lambda z: (z["w"], 1)}, says("log_prior must return a scalar", "tuple")),
    "integer": ({"log_prior": lambda z: jnp.int32(z["w"])}, says("log_prior must return a real number", "int32")),
    "numpy": (
        {"log_prior": lambda z: float(np.sin(z["w"]))},
        says("log_prior cannot be compiled", "jax.numpy instead of numpy"),
    ),
    "nan at the start": (
        {"log_prior": lambda z: jnp.log(z["w"] - 10)},
        says("log_prior is nan", "initial approximation (w =", "initial={...}"),
    ),
    "infinite likelihood at the start": (
        {"log_likelihood": lambda z, rows: likelihood(z, rows) + jnp.log(0 * z["w"])},
        says("log_likelihood is -inf", "start elsewhere"),
    ),
    "nan gradient at the start": (
        {"log_prior": lambda z: prior(z) + jnp.where(z["w"] > 9, jnp.sqrt(z["w"] - 9), 0.0)},
        says("log_prior has gradient nan in w"),
    ),
    "nan gradient in single precision only": (
        {"log_prior": lambda z: prior(z) + jnp.sqrt(jnp.exp(-120 - z["w"] ** 2))},
        says("log_prior has gradient nan in w", "In double precision it is finite", "jax_enable_x64"),
    ),
}


@pytest.mark.parametrize("case", MODELS)
def test_model(case):
    changes, words = MODELS[case]
    with pytest.raises(isvi.ModelError, match=words):
        fit(model(**changes))


def test_flat_prior_is_allowed_when_declared():
    latents = {"w": isvi.real(), "v": isvi.real(flat_prior=True)}
    flat = model(latents=latents, log_likelihood=lambda z, rows: likelihood(z, rows) - z["v"] ** 2)
    assert fit(flat).status.good


LATENTS = {
    "integers": (lambda: isvi.constrained(constraints.nonnegative_integer), says("continuous", "Sum the discrete")),
    "shape in a tuple": (lambda: isvi.real((500,)), says("positive whole numbers", "real(500)")),
    "negative shape": (lambda: isvi.real(-1), says("positive whole numbers", "(-1,)")),
    "simplex of one": (lambda: isvi.simplex(1), says("at least 2", "(1,)")),
    "scalar simplex": (lambda: isvi.simplex(), says("at least 2", "()")),
    "scalar ordered": (lambda: isvi.ordered(), says("at least 1 dimension", "()")),
    "empty interval": (lambda: isvi.interval(2.0, 1.0), says("low < high", "low=2.0, high=1.0")),
    "infinite interval": (lambda: isvi.interval(0.0, np.inf), says("finite", "high=inf")),
    "unknown map": (lambda: isvi.positive(via="log"), says("'softplus' or 'exp'", "'log'")),
    "no latents": (lambda: model(latents={}), says("non-empty mapping", "{}")),
    "not a latent": (lambda: model(latents={"w": 3}), says("'w'", "isvi.real()", "got 3")),
    "prior that is no function": (lambda: model(log_prior=3.0), says("log_prior must be a function", "3.0")),
}


@pytest.mark.parametrize("case", LATENTS)
def test_latents(case):
    make, words = LATENTS[case]
    with pytest.raises(isvi.ModelError, match=words):
        make()


SETTINGS = {
    "t of one": (lambda: isvi.ISGD(t=1.0), says("t is the probability of reusing", "[0, 1)", "got 1.0", "t=0.9")),
    "negative t": (lambda: isvi.ISGD(t=-0.1), says("[0, 1)", "got -0.1")),
    "nan t": (lambda: isvi.Random(t=float("nan")), says("[0, 1)", "got nan")),
    "alpha": (lambda: isvi.SRA(alpha=1.0), says("alpha", "[0, 1)", "got 1.0")),
    "latest": (lambda: isvi.ISAG(latest=0), says("latest", "at least 1", "got 0")),
    "steps": (lambda: isvi.FixedSteps(0), says("steps", "at least 1", "got 0")),
    "adaptive": (lambda: isvi.Adaptive(max_steps=0), says("max_steps >= 1", "max_steps=0")),
    "safe weight": (lambda: isvi.ISGD(safe_weight=1.0), says("safe_weight", "above 1", "got 1.0")),
    "zero samples": (lambda: isvi.Reparameterization(num_samples=0), says("num_samples", "at least 1", "got 0")),
    "odd pairs": (
        lambda: isvi.Reparameterization(num_samples=3, antithetic=True),
        says("pairs", "must be even", "got 3"),
    ),
    "weights": (lambda: isvi.Reparameterization(weights="best"), says("'exact', 'paper' or 'none'", "'best'")),
    "cap": (lambda: isvi.Reparameterization(max_weight=0.0), says("max_weight must be positive", "0.0")),
    "entropy": (lambda: isvi.Reparameterization(entropy="no"), says("'exact', 'weighted' or 'sticking'", "'no'")),
    "sticking": (lambda: isvi.ScoreFunction(entropy="sticking"), says("score function", "'sticking'")),
    "control variate of one": (lambda: isvi.ScoreFunction(num_samples=1), says("at least 2", "num_samples=1")),
    "zero samples in fit": (lambda: fit(num_samples=0), says("num_samples", "at least 1", "got 0")),
    "budget": (lambda: fit(budget=0), says("budget", "at least one record", "got 0")),
    "initial of a stranger": (lambda: fit(initial={"v": 0.0}), says("initial names ['v']", "['w']")),
    "initial shape": (lambda: fit(initial={"w": [0.0, 1.0]}), says("initial['w']", "shape ()", "(2,)")),
    "initial nan": (lambda: fit(initial={"w": np.nan}), says("initial values", "inside", "w")),
    "initial scale": (lambda: fit(initial_scale=0.0), says("initial_scale must be a positive number", "0.0")),
    "family that is none": (lambda: fit(family="gaussian"), says("family must be a family", "'gaussian'")),
    "family that is a class": (lambda: fit(family=isvi.FullRank), says("such as MeanField()", "FullRank")),
    "family that is none, of a latent": (
        lambda: fit(family={"w": "gaussian"}),
        says("family must be a family", "'gaussian' for latent 'w'"),
    ),
    "family of a stranger": (lambda: fit(family={"v": isvi.MeanField()}), says("family names ['v']", "['w']")),
    "gamma of a real": (lambda: fit(family=families.Gamma()), says("Gamma", "positive", "'w'", "MeanField()")),
    "beta of a real": (lambda: fit(family=families.Beta()), says("Beta", "'w'", "MeanField()")),
    "dirichlet of a real": (lambda: fit(family=families.Dirichlet()), says("Dirichlet", "simplex", "'w'")),
    "block that forgets": (lambda: fit(family=isvi.Block([["v"]])), says("exactly once", "['w']", "['v']")),
}


@pytest.mark.parametrize("case", SETTINGS)
def test_settings(case):
    make, words = SETTINGS[case]
    with pytest.raises(isvi.ConfigurationError, match=words):
        make()


def test_pairs_of_a_family_without_mirror():
    positive = isvi.Model({"w": isvi.positive()}, lambda z: -z["w"])
    pairs = isvi.Reparameterization(num_samples=2, antithetic=True)
    with pytest.raises(isvi.ConfigurationError, match=says("antithetic", "antithetic=False")):
        isvi.fit(positive, family=families.Gamma(), estimator=pairs, **OPTIONS)


def test_paper_weights_of_a_family_without_base_distribution():
    positive = isvi.Model({"w": isvi.positive()}, lambda z: -z["w"])
    with pytest.raises(isvi.ConfigurationError, match=says("weights='paper'", "weights='exact'")):
        isvi.fit(positive, family=families.Gamma(), estimator=isvi.Reparameterization(weights="paper"), **OPTIONS)


def test_all_errors_are_value_errors_of_one_kind():
    for error in (isvi.ModelError, isvi.DataError, isvi.ConfigurationError):
        assert issubclass(error, isvi.IsviError)
        assert issubclass(error, ValueError)
