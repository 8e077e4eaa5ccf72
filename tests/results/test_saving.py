"""Saved fits: what comes back, what is refused, and that nothing is executed."""

import io
import json
import pickle
import zipfile

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.stats import gamma, norm
from numpyro.distributions import constraints
from support import regression

import isvi


def every_kind() -> isvi.Model:
    """Latents of many kinds, with proper priors in whatever space."""
    latents = {
        "real": isvi.real(2, 3),
        "positive": isvi.positive(2),
        "exp": isvi.positive(via="exp"),
        "interval": isvi.interval(-1.0, 2.0),
        "simplex": isvi.simplex(3),
        "ordered": isvi.ordered(3),
        "cholesky": isvi.constrained(constraints.corr_cholesky, 3, 3),
        "above": isvi.constrained(constraints.greater_than(3.0)),
    }
    return isvi.Model(latents, lambda z: sum(norm.logpdf(value).sum() for value in z.values()))


@pytest.fixture(scope="module")
def fit() -> isvi.Fit:
    return isvi.fit(every_kind(), algorithm=isvi.SGD(), family=isvi.Block(), budget=20)


def test_everything_comes_back(fit, tmp_path):
    fit.save(tmp_path / "it.isvi")
    loaded = isvi.load(tmp_path / "it.isvi")
    for name, values in fit.sample(50, seed=3).items():
        np.testing.assert_array_equal(loaded.sample(50, seed=3)[name], values)
    assert loaded.status == fit.status
    assert loaded.history == fit.history
    assert (loaded.gradients, loaded.steps) == (fit.gradients, fit.steps)
    assert (loaded.seconds, loaded.compile_seconds) == (fit.seconds, fit.compile_seconds)
    assert str(loaded.summary()) == str(fit.summary())
    np.testing.assert_array_equal(loaded.log_prob(fit.sample(5)), fit.log_prob(fit.sample(5)))


@pytest.mark.parametrize(
    ("latent", "density", "family"),
    [
        (isvi.positive(2), lambda z: gamma.logpdf(z, 2.0).sum(), isvi.Gamma()),
        (isvi.positive(2), lambda z: gamma.logpdf(z, 2.0).sum(), isvi.LogNormal()),
        pytest.param(isvi.unit_interval(2), lambda z: jnp.log(z).sum(), isvi.Beta(), marks=pytest.mark.slow),
        pytest.param(isvi.simplex(3), lambda z: jnp.log(z).sum(), isvi.Dirichlet(), marks=pytest.mark.slow),
        (isvi.real(2), lambda z: norm.logpdf(z).sum(), isvi.StudentT(df=4.0)),
        (isvi.real(2), lambda z: norm.logpdf(z).sum(), isvi.FullRank()),
        (isvi.real(2), lambda z: norm.logpdf(z).sum(), isvi.LowRank(1)),
    ],
    ids=lambda value: type(value).__name__ if not callable(value) else "",
)
def test_every_family_comes_back(tmp_path, latent, density, family):
    model = isvi.Model({"z": latent}, lambda values: density(values["z"]))
    fit = isvi.fit(model, family=family, algorithm=isvi.SGD(), budget=5)
    fit.save(tmp_path / "it.isvi")
    np.testing.assert_array_equal(isvi.load(tmp_path / "it.isvi").sample(10)["z"], fit.sample(10)["z"])


def test_what_needs_the_model_says_so_and_works_with_it(tmp_path):
    options = {"algorithm": isvi.SGD(), "budget": 50, "batch_size": 30}
    fit = isvi.fit(regression.model(), regression.data(), **options)
    fit.save(tmp_path / "it.isvi")
    with pytest.raises(isvi.ConfigurationError, match="loaded without its model and data"):
        isvi.load(tmp_path / "it.isvi").elbo()
    whole = isvi.load(tmp_path / "it.isvi", regression.model(), regression.data())
    assert whole.elbo(20).value == pytest.approx(fit.elbo(20).value, rel=1e-9)
    with pytest.raises(isvi.CheckpointError, match="latents"):
        isvi.load(tmp_path / "it.isvi", every_kind())


def test_a_model_that_reports_more_than_its_latents(tmp_path):
    model = isvi.Model(
        {"z": isvi.real()}, lambda z: norm.logpdf(z["z"]), report=lambda draws: {**draws, "twice": 2 * draws["z"]}
    )
    fit = isvi.fit(model, algorithm=isvi.SGD(), budget=5)
    fit.save(tmp_path / "it.isvi")
    loaded = isvi.load(tmp_path / "it.isvi")
    assert loaded.mean()["twice"] == pytest.approx(2 * loaded.mean()["z"])
    assert loaded.summary().names == ["z", "twice"]
    with pytest.raises(isvi.ConfigurationError, match="loaded without its model"):
        loaded.sample(5)
    assert "twice" in isvi.load(tmp_path / "it.isvi", model).sample(5)


def test_the_format_is_open(fit, tmp_path):
    """As docs/saving.md describes it: readable with zipfile, json and numpy alone."""
    fit.save(tmp_path / "it.isvi")
    with zipfile.ZipFile(tmp_path / "it.isvi") as archive:
        described = json.loads(archive.read("fit.json"))
        first = np.load(io.BytesIO(archive.read("params/0.npy")), allow_pickle=False)
    assert described["format"] == 1
    assert described["latents"] == list(every_kind().latents)
    np.testing.assert_array_equal(first, jax.tree.leaves(fit.params)[0])


def rewritten(path, **members) -> None:
    """The same archive with some members replaced."""
    with zipfile.ZipFile(path) as archive:
        contents = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in {**contents, **members}.items():
            archive.writestr(name, content)


class Bomb:
    def __reduce__(self):
        return (pytest.fail, ("code from the file was run",))


def test_nothing_in_the_file_is_executed(fit, tmp_path):
    path = tmp_path / "it.isvi"
    fit.save(path)
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "|O", "fortran_order": False, "shape": (1,)})
    rewritten(path, **{"params/0.npy": header.getvalue() + pickle.dumps([Bomb()])})
    with pytest.raises(isvi.CheckpointError, match="damaged"):
        isvi.load(path)


def test_unknown_kinds_are_refused(fit, tmp_path):
    path = tmp_path / "it.isvi"
    fit.save(path)
    with zipfile.ZipFile(path) as archive:
        described = json.loads(archive.read("fit.json"))
    described["approximation"]["factors"][0]["kind"] = "os.system"
    rewritten(path, **{"fit.json": json.dumps(described)})
    with pytest.raises(isvi.CheckpointError, match=r"os\.system"):
        isvi.load(path)
    rewritten(path, **{"fit.json": json.dumps({**described, "format": 2})})
    with pytest.raises(isvi.CheckpointError, match="format 2"):
        isvi.load(path)


def test_damaged_files_give_a_clear_error(fit, tmp_path):
    """Bytes flipped, and files cut, at many places: an error of isvi's own, or the right fit."""
    path = tmp_path / "it.isvi"
    fit.save(path)
    whole = path.read_bytes()
    expected = fit.sample(3)["real"]
    generator = np.random.default_rng(0)
    for position in generator.integers(0, len(whole), 150):
        for damaged in (whole[:position], whole[:position] + bytes([whole[position] ^ 0xFF]) + whole[position + 1 :]):
            path.write_bytes(damaged)
            try:
                found = isvi.load(path).sample(3)["real"]
            except isvi.IsviError:
                continue
            np.testing.assert_array_equal(found, expected)


def test_missing_places(fit, tmp_path):
    with pytest.raises(isvi.CheckpointError, match="no saved fit"):
        isvi.load(tmp_path / "nothing")
    with pytest.raises(isvi.ConfigurationError, match="there is no folder"):
        fit.save(tmp_path / "nothing" / "it.isvi")
