"""Another start that ended elsewhere, with an ELBO as good, is another mode."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import isvi
from isvi.diagnosis.modes import ANOTHER_MODE, AS_GOOD, another_mode
from isvi.results.attempts import Attempt

FIRST_ELBO = -3.0


@pytest.fixture(scope="module")
def two_modes() -> isvi.Fit:
    """Half of the mass around -8, half around 8, each with a standard deviation of 1."""
    model = isvi.Model(
        {"z": isvi.real()}, lambda z: jnp.logaddexp(-0.5 * (z["z"] - 8.0) ** 2, -0.5 * (z["z"] + 8.0) ** 2)
    )
    return isvi.fit(model, initial={"z": 8.0}, progress=False)


@pytest.mark.parametrize(
    ("elbo", "place", "found"),
    [
        (FIRST_ELBO, -8.0, True),
        (FIRST_ELBO - 2 * AS_GOOD, -8.0, False),  # hardly any mass there
        (FIRST_ELBO, 7.0, False),  # within q
        (np.nan, -8.0, False),  # the model was not finite
    ],
)
def test_only_a_mode_that_is_far_and_as_good_counts(
    two_modes: isvi.Fit, elbo: float, place: float, found: bool
) -> None:
    fit = replace(two_modes, starts=(Attempt(elbo, (place,), 20),))
    assert another_mode(fit, FIRST_ELBO) is found


def test_the_verdict_is_poor_and_says_why(two_modes: isvi.Fit) -> None:
    """q is exact around its own mode, so that nothing else could tell."""
    alone = two_modes.diagnose()
    other = Attempt(two_modes.elbo().value, (-8.0,), 20)
    both = replace(two_modes, starts=(other,)).diagnose()
    assert alone.verdict == "good"
    assert both.verdict == "poor"
    assert ANOTHER_MODE in str(both)


def mixture(log_prior) -> isvi.Fit:
    """Two components, of which either can come first; q has the smaller mean first."""
    y = jnp.asarray(np.random.default_rng(0).normal(size=200) + np.repeat([-3.0, 3.0], [120, 80]))

    def log_density(z):
        parts = jnp.log(z["share"]) - 0.5 * (y[:, None] - z["mean"]) ** 2
        return log_prior(z["mean"]) + jnp.sum(jax.nn.logsumexp(parts, axis=1))

    model = isvi.Model({"mean": isvi.real(2), "share": isvi.simplex(2)}, log_density)
    start = {"mean": jnp.array([-3.0, 3.0]), "share": jnp.array([0.6, 0.4])}
    return isvi.fit(model, initial=start, progress=False)


@pytest.mark.parametrize(("prior", "same"), [(0.0, True), (1e-3, False)])
def test_a_mirror_image_is_no_other_mode(prior: float, same: bool) -> None:
    """Components in the other order: the same model, or, with a prior for one order, not quite."""
    fit = mixture(lambda mean: prior * mean[0] - 0.01 * jnp.sum(mean**2))
    location = fit.approximation.coordinates.encode({"mean": jnp.array([3.0, -3.0]), "share": jnp.array([0.4, 0.6])})
    both = replace(fit, starts=(Attempt(fit.elbo().value, tuple(map(float, location)), 20),))
    found = another_mode(both, fit.elbo().value)
    assert found == (("mean", "share") if same else True)
    told = both.diagnose()
    assert told.verdict == ("good" if same else "poor"), str(told)
    assert ("mirror images" in told.reasons[-1]) is same
