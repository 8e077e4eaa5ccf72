"""Comparing the mean of many estimates with an exact value."""

import numpy as np

SIGMAS = 5.0
"""Two-sided: a correct estimator fails with probability 2 (1 - Phi(5)) = 5.7e-7 per entry. Keys are fixed, so a
test that passes once always passes; the rate says how likely a correct change of the random numbers breaks it."""


def assert_mean_is(estimates: np.ndarray, expected: np.ndarray, sigmas: float = SIGMAS) -> None:
    """The mean over the first axis equals ``expected`` within ``sigmas`` standard errors, entry by entry.

    Entries that do not vary must agree to rounding.
    """
    estimates, expected = np.asarray(estimates, float), np.asarray(expected, float)
    mean = estimates.mean(axis=0)
    standard_error = estimates.std(axis=0, ddof=1) / np.sqrt(len(estimates))
    rounding = 1e-9 * (1 + np.abs(expected))
    distance = np.abs(mean - expected)
    worst = np.argmax(distance / (sigmas * standard_error + rounding))
    assert np.all(distance <= sigmas * standard_error + rounding), (
        f"entry {worst}: mean {mean.flat[worst]:.5f}, exact {np.asarray(expected).flat[worst]:.5f}, "
        f"standard error {standard_error.flat[worst]:.5f}"
    )


def resolution(estimates: np.ndarray, sigmas: float = SIGMAS) -> np.ndarray:
    """The smallest error that :func:`assert_mean_is` is sure to notice, entry by entry."""
    return sigmas * np.asarray(estimates).std(axis=0, ddof=1) / np.sqrt(len(estimates))
