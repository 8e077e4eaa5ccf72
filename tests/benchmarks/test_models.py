"""Other people's models: that they are well-formed, and that what is measured is what is told."""

import math
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks.models import report, stan, store
from benchmarks.models.measure import Errors, Result, compare, run_isvi
from benchmarks.models.numpyro import CASES
from benchmarks.models.reference import FOLDER, Reference, arguments, latent_sites, prior_trace, read


@pytest.mark.parametrize("name", CASES)
def test_log_density_is_finite_at_a_draw_from_the_prior(name: str) -> None:
    if name == "flax_network":
        pytest.importorskip("flax")
    case = CASES[name]
    data = arguments(case)

    @jax.jit  # one program: operation by operation there are hundreds
    def log_densities() -> list[jax.Array]:
        sites = [site for site in prior_trace(case, data).values() if site["type"] == "sample"]
        assert any(site["is_observed"] for site in sites) or case.exact or name.startswith("funnel")
        return [jnp.sum(site["fn"].log_prob(site["value"])) for site in sites]

    assert np.isfinite(log_densities()).all()


@pytest.mark.parametrize("name", [path.stem for path in FOLDER.glob("*.json")])
def test_references_belong_to_models(name: str) -> None:
    reference = read(name)
    assert reference is not None
    assert name in CASES
    assert reference.size > 0


@pytest.mark.parametrize("name", stan.CASES)
def test_stan_programs_get_what_they_declare(name: str) -> None:
    block = stan.PROGRAMS[name].read_text().split("data {")[1].split("}")[0].splitlines()
    declared = {line.split(";")[0].split()[-1] for line in block if ";" in line}
    assert declared <= stan.data(stan.CASES[name]).keys()


@pytest.mark.filterwarnings("ignore:Data in age contains missing values")
def test_pymc_models_have_the_latents_of_their_references() -> None:
    """All but those that PyMC makes or packs itself: the imputed ones, and a Cholesky factor."""
    pytest.importorskip("pymc")
    from benchmarks.models import pymc

    for case in pymc.CASES.values():
        ours = {variable.name for variable in case.model(**case.data().everything).free_RVs}
        theirs = latent_sites(CASES[case.name]) | {"packed", "age_unobserved"}
        assert ours <= theirs, case.name


def test_a_small_model_is_measured(tmp_path: Path) -> None:
    """One latent, 18 rows: the fit is right, is called good, and comes back from the file as it was."""
    result = run_isvi(CASES["baseball_pooled"], read("baseball_pooled"), seed=0)
    assert (result.accepted, result.errors.right, result.verdict) == (True, True, "good")
    store.add([result], tmp_path / "models.csv")
    [again] = store.read(tmp_path / "models.csv")
    assert again.errors.mean == pytest.approx(result.errors.mean, rel=1e-3)
    assert report.truth_of(again) == "yes"
    assert "| baseball_pooled | 1 | 0 |" in report.markdown([again])


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_the_start_that_is_slow_at_first_may_lead_to_the_best_mode(seed: int) -> None:
    """A mixture of three: after 16 records four of eight starts are ahead of the one that ends 30 nats above them."""
    result = run_isvi(CASES["mixture"], read("mixture"), seed)
    assert result.status == "converged"
    assert result.errors.right


def test_what_is_refused_is_told() -> None:
    result = run_isvi(CASES["autoencoder"], None, seed=0)
    assert not result.accepted
    assert (CASES["autoencoder"].refused or "") in result.message
    assert "autoencoder: " in report.markdown([result])


def _latent(mean: float, sd: float, sd_error: float = 0.0) -> dict[str, np.ndarray]:
    return {"mean": np.array(mean), "sd": np.array(sd), "sd_error": np.array(sd_error)}


def test_errors_are_of_the_worst_entry_that_has_a_truth() -> None:
    reference = Reference("", {"a": _latent(1, 2), "b": _latent(0, 1), "c": _latent(0, 1, 0.5)}, 0, {})
    errors = compare(reference, {"a": 2.0, "b": 0.1, "c": 9.0}, {"a": 3.0, "b": 0.9, "c": 9.0})
    assert errors == Errors(0.5, 0.9, 1.5, "a")
    assert not errors.right


@pytest.mark.parametrize(
    ("status", "verdict", "errors", "truth"),
    [
        ("converged", "good", Errors(0.1, 0.9, 1.1), "yes"),
        ("converged", "good", Errors(0.1, 0.9, 1.3), "**good but wrong**, **converged but wrong**"),
        ("converged", "poor", Errors(0.3, 0.9, 1.1), "converged, not right, said so"),
        ("budget", "poor", Errors(0.1, 0.9, 1.1), "poor but right"),
        ("budget", "usable", Errors(0.3, 0.9, 1.1), "**usable but wrong**"),
        ("budget", "good", Errors(), ""),
        ("converged", "usable", Errors(0.3, 0.9, 1.1), "**usable but wrong**, **converged but wrong**"),
    ],
)
def test_what_is_true(status: str, verdict: str, errors: Errors, truth: str) -> None:
    result = Result("NumPyro", "a", "isvi", 0, status, verdict=verdict, errors=errors, resampled=Errors(1.0, 1.0, 1.0))
    assert report.truth_of(result) == truth
    mended = replace(result, verdict="usable", resampled=Errors(0.1, 0.9, 1.1))
    wrong = status == "converged" and not errors.right and not math.isnan(errors.mean)
    assert report.truth_of(mended) == ("converged, not right, said so" if wrong else "yes" if truth else "")
    assert math.isnan(Errors().mean)
