"""A gradient that is not that of its density is refused before fitting, and a right one never is."""

import numpy as np
import pytest

import isvi

QUICK = {"algorithm": isvi.ISGD(), "budget": 3}
RANDOM = np.random.default_rng(0)
ROOT = RANDOM.normal(size=(40, 40)) / 6
PRECISION = ROOT @ ROOT.T + np.eye(40)


def gaussian(z):
    return -0.5 * z @ PRECISION @ z + np.sin(z).sum(), -PRECISION @ z + np.cos(z)


def changed(change):
    """The same density with another gradient."""
    return lambda z: (gaussian(z)[0], change(gaussian(z)[1]))


def one_entry(gradient):
    return np.where(np.arange(40) == 17, 1.3 * gradient + 0.2, gradient)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda g: -g, r"sign is wrong"),
        (lambda g: 1.3 * g, r"1\.3 times as much"),
        (lambda g: g / 2, r"0\.5 times as much"),
        (one_entry, r"In z\[17\] it is"),
        (lambda g: 0 * g, r"the gradient says 0"),
    ],
)
def test_wrong_gradients_are_named(change, words):
    with pytest.raises(isvi.ModelError, match=words):
        isvi.fit(isvi.from_gradient(changed(change), 40), **QUICK)


def test_it_can_be_left_out():
    fit = isvi.fit(isvi.from_gradient(changed(lambda g: 1.3 * g), 40, check_gradient=False), **QUICK)
    assert fit.gradients == 3


def test_a_right_gradient_takes_three_evaluations():
    model = isvi.from_gradient(gaussian, 40)
    isvi.fit(model, **QUICK)
    bare = isvi.from_gradient(gaussian, 40, check_gradient=False)
    isvi.fit(bare, **QUICK)
    assert model.external.count.draws - bare.external.count.draws == 3


def test_constrained_latents_and_rows():
    """The comparison is in unconstrained space, with what the library adds to the gradient."""
    rows = np.random.default_rng(1).exponential(size=50)

    def likelihood(z, rows, factor=1.0):
        slope = len(rows) / z["rate"] - rows.sum()
        return len(rows) * np.log(z["rate"]) - z["rate"] * rows.sum(), {"rate": factor * slope}

    def model(factor):
        return isvi.from_gradient(
            lambda z, rows: likelihood(z, rows, factor), {"rate": isvi.positive()}, log_prior=lambda z: -z["rate"]
        )

    assert isvi.fit(model(1.0), rows, batch_size=20, **QUICK).gradients == 3
    with pytest.raises(isvi.ModelError, match="rate"):
        isvi.fit(model(-1.0), rows, batch_size=20, **QUICK)


@pytest.mark.parametrize("rows", [10, 1000, 100_000])
@pytest.mark.parametrize("seed", range(5))
def test_single_precision_raises_no_alarm(rows, seed):
    """All is computed in float32, with a log density of up to 1e5: right gradients pass, of the wrong sign do not."""
    random = np.random.default_rng(seed)
    x = random.normal(size=(rows, 3)).astype(np.float32)
    y = (x @ random.normal(size=3) > 0).astype(np.float32)

    def logistic(z, sign=1):
        w = np.asarray(z, np.float32)
        eta = x @ w
        value = np.sum(y * eta - np.logaddexp(np.float32(0), eta), dtype=np.float32) - w @ w / np.float32(2)
        return value, sign * (x.T @ (y - 1 / (1 + np.exp(-eta))) - w)

    assert isvi.fit(isvi.from_gradient(logistic, 3), **QUICK, seed=seed).gradients == 3
    with pytest.raises(isvi.ModelError, match="sign is wrong"):
        isvi.fit(isvi.from_gradient(lambda z: logistic(z, -1), 3), **QUICK, seed=seed)


def test_noise_and_kinks_raise_no_alarm():
    noise = np.random.default_rng(0)
    noisy = isvi.from_gradient(lambda z: (-0.5 * z @ z + noise.normal(), -z), 3)
    kinked = isvi.from_gradient(lambda z: (-np.abs(z).sum(), -np.sign(z)), 3)
    assert isvi.fit(noisy, **QUICK).gradients == 3
    assert isvi.fit(kinked, **QUICK).gradients == 3
