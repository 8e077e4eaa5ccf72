"""Which latents belong to groups of rows."""

from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.stats import norm

import isvi
from isvi.fitting.options import Options
from isvi.fitting.setup import Setup, prepare
from isvi.model.grouping import candidates

GROUPS, ROWS = 250, 12_000


def rows() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    group = rng.integers(GROUPS, size=ROWS).astype(np.int32)
    return {"y": rng.normal(size=ROWS), "group": group, "other": rng.permutation(group)}


def prepared(mean: Callable, log_prior: Callable, more: dict | None = None) -> Setup:
    latents = {"effects": isvi.real(GROUPS), "spread": isvi.positive(), "level": isvi.real()} | (more or {})
    model = isvi.Model(latents, log_prior, lambda z, r: norm.logpdf(r["y"], mean(z, r), 1.0).sum())
    return prepare(model, rows(), Options(batch_size=1_000))


def independent(z: dict) -> jnp.ndarray:
    return sum(norm.logpdf(value).sum() for value in z.values())


def test_effects_of_groups_are_found_and_stand_behind_the_others() -> None:
    setup = prepared(lambda z, r: z["level"] + z["spread"] * z["effects"][r["group"]], independent)
    assert setup.groups is not None
    assert (setup.groups.shared, setup.groups.number, setup.groups.widths) == (2, GROUPS, (1,))
    assert [entry.name for entry in setup.approximation.coordinates.entries] == ["spread", "level", "effects"]


def test_effects_and_slopes_of_the_same_groups_belong_together() -> None:
    setup = prepared(
        lambda z, r: z["effects"][r["group"]] + (z["slopes"][r["group"]] * r["y"][:, None] ** 2).sum(axis=1),
        lambda z: independent(z) + norm.logpdf(z["effects"], z["level"], z["spread"]).sum(),
        {"slopes": isvi.real(GROUPS, 2)},
    )
    assert setup.groups is not None
    assert setup.groups.widths == (1, 2)


@pytest.mark.parametrize(
    ("mean", "log_prior"),
    [
        pytest.param(lambda z, r: z["effects"][r["group"]] - z["effects"][r["other"]], independent, id="two to a row"),
        pytest.param(lambda z, r: (z["effects"] - z["effects"].mean())[r["group"]], independent, id="sum to zero"),
        pytest.param(
            lambda z, r: z["effects"][r["group"]],
            lambda z: independent(z) - 0.5 * jnp.sum(jnp.diff(z["effects"]) ** 2),
            id="a random walk",
        ),
    ],
)
def test_what_couples_groups_makes_them_none(mean: Callable, log_prior: Callable) -> None:
    setup = prepared(lambda z, r: z["level"] * z["spread"] + mean(z, r), log_prior)
    assert setup.groups is None


def test_latents_that_would_leave_as_many_unknowns_are_not_asked_about() -> None:
    assert candidates({"a": isvi.real(100), "b": isvi.real(7)}) == [("a",)]
    assert candidates({"a": isvi.real(20), "b": isvi.real(100, 100)}) == [("b",)]
    assert candidates({"a": isvi.real(100), "b": isvi.real(200)}) == [("b",)]
    assert candidates({"weights": isvi.simplex(300), "tau": isvi.positive()}) == []


def test_a_mixed_model_of_hundreds_of_latents_converges_to_its_closed_form() -> None:
    """Normal effects, centred, with known scales: the posterior is Gaussian, with the precision below. Tolerances are
    what "converged" promises."""
    rng = np.random.default_rng(1)
    group = rng.integers(GROUPS, size=ROWS).astype(np.int32)
    y = 1.0 + 0.5 * rng.normal(size=GROUPS)[group] + rng.normal(size=ROWS)
    model = isvi.Model(
        {"effects": isvi.real(GROUPS), "level": isvi.real()},
        lambda z: norm.logpdf(z["level"], 0, 10) + norm.logpdf(z["effects"], z["level"], 0.5).sum(),
        lambda z, r: norm.logpdf(r["y"], z["effects"][r["group"]], 1.0).sum(),
    )
    fit = isvi.fit(model, {"y": y, "group": group}, batch_size=500, seed=0, progress=False)
    precision = np.zeros((GROUPS + 1, GROUPS + 1))
    counts, sums = np.bincount(group, minlength=GROUPS), np.bincount(group, y, minlength=GROUPS)
    precision[np.arange(GROUPS), np.arange(GROUPS)] = counts + 4
    precision[-1, :-1] = precision[:-1, -1] = -4
    precision[-1, -1] = 0.01 + 4 * GROUPS
    covariance = np.linalg.inv(precision)
    mean, sd = covariance @ np.append(sums, 0), np.sqrt(np.diagonal(covariance))
    assert fit.status.kind == "converged"
    found = np.append(fit.mean()["effects"], fit.mean()["level"])
    assert np.abs(found - mean).max() < 0.1 * sd.max()
    # Of 10,000 draws an sd is off by 0.7%; the largest of 251 by 2.5%.
    widths = np.append(fit.sd()["effects"], fit.sd()["level"]) / sd
    assert 0.88 < widths.min() < widths.max() < 1.12
