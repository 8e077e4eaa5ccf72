"""Another start that ended elsewhere, with an ELBO as good, is another mode."""

from dataclasses import replace

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
