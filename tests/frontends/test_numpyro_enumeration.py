"""Discrete latents are summed out: log densities against models in which that was done by hand."""

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

import isvi
from isvi.checkpoints.probes import trace_digest
from isvi.core import extras
from isvi.model import Bound

RNG = np.random.default_rng(0)

needs_funsor = pytest.mark.usefixtures("funsor")


@pytest.fixture
def funsor() -> Any:
    return pytest.importorskip("funsor")


def components() -> tuple[Any, Any, Any]:
    weights = numpyro.sample("weights", dist.Dirichlet(jnp.ones(2)))
    means = numpyro.sample("means", dist.Normal(0, 3).expand([2]).to_event(1))
    return weights, means, numpyro.sample("noise", dist.HalfNormal(2))


def mixture(y: Any) -> None:
    weights, means, noise = components()
    numpyro.factor("soft", -0.1 * noise)  # about no row, and no component
    with numpyro.plate("rows", len(y)):
        chosen = numpyro.sample("chosen", dist.Categorical(weights), infer={"enumerate": "parallel"})
        numpyro.sample("y", dist.Normal(means[chosen], noise), obs=y)


def mixture_by_hand(y: Any) -> None:
    weights, means, noise = components()
    numpyro.factor("soft", -0.1 * noise)
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.MixtureSameFamily(dist.Categorical(weights), dist.Normal(means, noise)), obs=y)


def hidden_markov(y: Any) -> None:
    transition = numpyro.sample("transition", dist.Dirichlet(jnp.ones(2)).expand([2]).to_event(1))
    means = numpyro.sample("means", dist.Normal(0, 3).expand([2]).to_event(1))

    def step(state: Any, y: Any) -> tuple[Any, None]:
        state = numpyro.sample("state", dist.Categorical(transition[state]), infer={"enumerate": "parallel"})
        numpyro.sample("y", dist.Normal(means[state], 0.6), obs=y)
        return state, None

    scan(step, 0, y)


def hidden_markov_by_hand(y: Any) -> None:
    transition = numpyro.sample("transition", dist.Dirichlet(jnp.ones(2)).expand([2]).to_event(1))
    means = numpyro.sample("means", dist.Normal(0, 3).expand([2]).to_event(1))
    emitted = dist.Normal(means, 0.6).log_prob(y[:, None])

    def forward(log_state: Any, emission: Any) -> tuple[Any, None]:
        return jax.nn.logsumexp(log_state[:, None] + jnp.log(transition), axis=0) + emission, None

    last, _ = jax.lax.scan(forward, jnp.log(transition[0]) + emitted[0], emitted[1:])
    numpyro.factor("y", jax.nn.logsumexp(last))


def annotation(labels: Any) -> None:
    """Dawid and Skene: every item has a class, every annotator a confusion matrix."""
    classes = numpyro.sample("classes", dist.Dirichlet(jnp.ones(3)))
    with numpyro.plate("annotators", 4, dim=-2), numpyro.plate("true classes", 3):
        confusion = numpyro.sample("confusion", dist.Dirichlet(jnp.ones(3)))
    with numpyro.plate("items", len(labels), dim=-1):
        item = numpyro.sample("item", dist.Categorical(classes), infer={"enumerate": "parallel"})
        with numpyro.plate("positions", 4, dim=-2):
            chances = confusion[jnp.arange(4)[:, None], item]
            numpyro.sample("label", dist.Categorical(chances), obs=jnp.swapaxes(labels, 0, 1))


def annotation_by_hand(labels: Any) -> None:
    classes = numpyro.sample("classes", dist.Dirichlet(jnp.ones(3)))
    with numpyro.plate("annotators", 4, dim=-2), numpyro.plate("true classes", 3):
        confusion = numpyro.sample("confusion", dist.Dirichlet(jnp.ones(3)))
    said = jnp.log(confusion[jnp.arange(4), :, labels]).sum(axis=1)  # (items, classes)
    numpyro.factor("label", jax.nn.logsumexp(said + jnp.log(classes), axis=1).sum())


def capture(seen: Any) -> None:
    """Cormack, Jolly and Seber, in three occasions: an animal that is dead is not seen."""
    survival, seeing = (numpyro.sample(name, dist.Uniform(0, 1)) for name in ("survival", "seeing"))
    with numpyro.plate("animals", len(seen)):
        alive = jnp.ones(len(seen), dtype=jnp.int32)
        for occasion in range(3):
            with handlers.mask(mask=jnp.asarray(True)):
                alive = numpyro.sample(
                    f"alive {occasion}", dist.Bernoulli(survival * alive), infer={"enumerate": "parallel"}
                )
            numpyro.sample(f"seen {occasion}", dist.Bernoulli(seeing * alive), obs=seen[:, occasion])


def capture_by_hand(seen: Any) -> None:
    survival, seeing = (numpyro.sample(name, dist.Uniform(0, 1)) for name in ("survival", "seeing"))
    total = jnp.zeros(len(seen))
    for years in range(4):  # survived
        died = 1.0 if years == 3 else 1 - survival
        chance = survival**years * died * jnp.ones(len(seen))
        for occasion in range(3):
            p = seeing if occasion < years else 0.0
            chance = chance * jnp.where(seen[:, occasion] == 1, p, 1 - p)
        total = total + chance
    numpyro.factor("seen", jnp.log(total).sum())


CASES: dict[str, tuple[Callable, Callable, dict]] = {
    "mixture": (mixture, mixture_by_hand, {"y": RNG.normal(size=30)}),
    "hidden Markov": (hidden_markov, hidden_markov_by_hand, {"y": RNG.normal(size=30)}),
    "annotation": (annotation, annotation_by_hand, {"labels": RNG.integers(0, 3, size=(30, 4))}),
    "capture and recapture": (capture, capture_by_hand, {"seen": RNG.integers(0, 2, size=(30, 3))}),
}


def values_of(bound: Bound) -> dict:
    keys = jax.random.split(jax.random.key(1), len(bound.model.latents))
    return {
        name: latent.transform(0.5 * jax.random.normal(key, latent.unconstrained_shape))
        for key, (name, latent) in zip(keys, bound.model.latents.items(), strict=True)
    }


@needs_funsor
@pytest.mark.parametrize(("model", "by_hand", "data"), CASES.values(), ids=CASES)
def test_density_is_that_of_the_sum_by_hand(model: Callable, by_hand: Callable, data: dict) -> None:
    """Prior and likelihood apart, of all rows and of a mini-batch; with all data bound, their sum."""
    found, expected = (isvi.from_numpyro(one).bind(data, 10) for one in (model, by_hand))
    values = values_of(expected)
    assert set(found.model.latents) == set(values)
    prior = float(expected.model.log_prior(values))
    assert float(found.model.log_prior(values)) == pytest.approx(prior, rel=1e-5)
    for count in (30, 10):
        rows = {name: jnp.asarray(column[:count]) for name, column in data.items()}
        likelihood = float(expected.model.log_likelihood(values, rows))
        assert float(found.model.log_likelihood(values, rows)) == pytest.approx(likelihood, rel=1e-5)
    whole = float(expected.model.log_likelihood(values, {name: jnp.asarray(column) for name, column in data.items()}))
    bound = isvi.from_numpyro(model, **data).bind()
    assert float(bound.model.log_prior(values)) == pytest.approx(prior + whole, rel=1e-5)


@pytest.mark.slow
@needs_funsor
def test_fit_and_posterior_of_the_discrete_sites() -> None:
    """Two components 3.5 apart with noise of 0.7: their means, and the members, of which Bayes' rule with the true
    parameters gets 99.4% right on average; 1.5% wrong of 400 is three sds more than 0.6%."""
    truth = RNG.integers(0, 2, size=400)
    y = np.where(truth == 0, -2.0, 1.5) + 0.7 * RNG.normal(size=400)
    model = isvi.from_numpyro(mixture)
    fit = isvi.fit(model, {"y": y}, batch_size=100, initial={"means": [-1.0, 1.0]}, progress=False)
    assert fit.dataset.num_batches == 4, "independent rows"
    by_hand = isvi.fit(isvi.from_numpyro(mixture_by_hand), {"y": y}, initial={"means": [-1.0, 1.0]}, progress=False)
    for name, sd in by_hand.sd().items():
        assert np.all(np.abs(fit.mean()[name] - by_hand.mean()[name]) < 0.25 * sd)
    members = fit.predict(num_samples=50, infer_discrete=True)
    assert set(members) == {"chosen"}
    assert members["chosen"].shape == (50, 400)
    assert np.mean(np.round(members["chosen"].mean(axis=0)) != truth) < 0.015
    new = fit.predict({"y": np.array([-3.0, 3.0])}, num_samples=20, infer_discrete=True)
    assert np.array_equal(new["chosen"].mean(axis=0), [0.0, 1.0])
    assert set(fit.predict(num_samples=5)) == {"chosen", "y"}


@needs_funsor
def test_series_are_not_cut_and_scans_are_not_drawn() -> None:
    y = RNG.normal(size=60)
    fit = isvi.fit(isvi.from_numpyro(hidden_markov), {"y": y}, batch_size=20, budget=40, progress=False)
    assert fit.dataset.num_batches == 1
    # Another process may sum in another order: the run could not be resumed if the trace were part of what it is.
    assert trace_digest(fit.model, fit.dataset) is None
    with pytest.raises(isvi.ModelError, match="inside a scan"):
        fit.predict(infer_discrete=True)


@needs_funsor
def test_priors_that_depend_on_discrete_sites_are_summed_with_them() -> None:
    """A latent and a factor whose densities depend on one discrete site for all rows."""

    def model(y: Any) -> None:
        wide = numpyro.sample("wide", dist.Bernoulli(0.3), infer={"enumerate": "parallel"})
        centre = numpyro.sample("centre", dist.Normal(0, 1 + 4 * wide))
        numpyro.factor("cost", -0.5 * wide)
        with numpyro.plate("rows", len(y)):
            numpyro.sample("y", dist.Normal(centre, 1), obs=y)

    y = RNG.normal(size=12)
    bound = isvi.from_numpyro(model).bind({"y": y})
    centre = jnp.asarray(0.7)
    by_hand = jnp.logaddexp(
        jnp.log(0.7) + dist.Normal(0, 1).log_prob(centre), jnp.log(0.3) - 0.5 + dist.Normal(0, 5).log_prob(centre)
    ) + jnp.sum(dist.Normal(centre, 1).log_prob(y))
    found = bound.model.log_prior({"centre": centre}) + bound.model.log_likelihood({"centre": centre}, {"y": y})
    assert float(found) == pytest.approx(float(by_hand), rel=1e-5)


def count_of_unknown(y: Any) -> None:
    rate = numpyro.sample("rate", dist.HalfNormal(1))
    with handlers.mask(mask=True), numpyro.plate("rows", len(y)):
        count = numpyro.sample("count", dist.Poisson(rate))
        numpyro.sample("y", dist.Normal(count, 1), obs=y)


def without_plate(y: Any) -> None:
    weight = numpyro.sample("weight", dist.Beta(1, 1))
    chosen = numpyro.sample("chosen", dist.Bernoulli(weight).expand([len(y)]))
    numpyro.sample("y", dist.Normal(chosen, 1), obs=y)


def test_what_has_no_end_is_refused_by_its_own_name() -> None:
    with pytest.raises(isvi.ModelError, match=r"'count' is discrete \(Poisson\)(?s:.*)Sum it out by hand"):
        isvi.from_numpyro(count_of_unknown).bind({"y": np.ones(5)})


@needs_funsor
def test_rows_need_a_plate() -> None:
    with pytest.raises(isvi.ModelError, match=r"must be a numpyro.plate(?s:.*)size 5 at site 'chosen'"):
        isvi.from_numpyro(without_plate).bind({"y": np.ones(5)})


def test_without_funsor_the_install_line_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr(extras, "import_module", missing)
    with pytest.raises(isvi.ConfigurationError, match=r"'chosen' needs funsor(?s:.*)pip install 'isvi\[enumerate\]'"):
        isvi.from_numpyro(mixture).bind({"y": np.ones(5)})


def test_models_without_discrete_sites_have_none_to_infer() -> None:
    fit = isvi.fit(isvi.from_numpyro(mixture_by_hand), {"y": RNG.normal(size=20)}, budget=4, progress=False)
    with pytest.raises(isvi.ConfigurationError, match="this has none"):
        fit.predict(infer_discrete=True)
