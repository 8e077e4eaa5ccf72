"""``isvi.cite`` prints BibTeX for what was used, and for nothing else."""

import re
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.stats import norm

import isvi
from isvi.report.citations import ENTRIES, OF_ALGORITHMS

POSITIVE = isvi.Model({"rate": isvi.positive()}, lambda z: jnp.log(z["rate"]) - 3 * z["rate"])
LOCAL = isvi.Model(
    {"tau": isvi.positive()},
    lambda z: norm.logpdf(z["tau"]),
    local={"u": isvi.real()},
    log_local_prior=lambda z: norm.logpdf(z["u"], 0, z["tau"]),
    log_likelihood=lambda z, row: norm.logpdf(row["y"], z["u"]),
)
CASES: dict[str, tuple[isvi.Model, Any, dict[str, Any], set[str]]] = {
    "auto": (POSITIVE, None, {}, {"mokhtari2018iqn", "kovalev2019stochastic"}),
    "gamma": (POSITIVE, None, {"family": isvi.Gamma()}, {"figurnov2018implicit"}),
    "score": (POSITIVE, None, {"estimator": isvi.ScoreFunction()}, {"ranganath2014black", "kingma2015adam"}),
    "local": (
        LOCAL,
        {"y": np.arange(20.0) / 10},
        {},
        {"mokhtari2018iqn", "kovalev2019stochastic", "pinheiro1995approximations"},
    ),
}


def keys(text: str) -> list[str]:
    return re.findall(r"^@\w+\{(\w+),$", text, re.MULTILINE)


@pytest.mark.parametrize("case", CASES)
def test_what_was_used_is_cited(case: str, capsys: pytest.CaptureFixture[str]) -> None:
    model, data, options, expected = CASES[case]
    fit = isvi.fit(model, data, budget=100, progress=False, **options)
    capsys.readouterr()
    isvi.cite(fit)
    assert set(keys(capsys.readouterr().out)) == {"sakaya2017importance", "vehtari2024pareto", *expected}


def test_without_a_fit(capsys: pytest.CaptureFixture[str]) -> None:
    isvi.cite()
    assert keys(capsys.readouterr().out) == ["sakaya2017importance", "vehtari2024pareto"]


def test_entries_are_complete() -> None:
    """Braces match, the key is the one that it is found by, and every algorithm is known."""
    for key, entry in ENTRIES.items():
        assert keys(entry) == [key]
        assert entry.count("{") == entry.count("}")
        assert all(re.search(rf"^  {field}\s+= ", entry, re.MULTILINE) for field in ("author", "title", "year"))
    algorithms = {name for name in isvi.__all__ if name in ("Auto", "SGD", "ISGD", "SAG", "SRA", "ISAG")}
    assert set(OF_ALGORITHMS) == algorithms
    assert {key for used in OF_ALGORITHMS.values() for key in used} <= set(ENTRIES)
