"""Natural gradients and bounded steps, against the Fisher information: the Hessian of the KL divergence."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.flatten_util import ravel_pytree
from jax.scipy.special import polygamma
from support import gaussian
from support.divergences import CASES, EXPONENTIAL, Divergence, members
from support.records import jiggled

import isvi
from isvi.families.block import GaussianBlocks
from isvi.families.gamma import GammaFactors, GammaParams
from isvi.families.special.simplex_fisher import simplex_natural, simplex_squared_length
from isvi.families.student_t import degrees_information

ALL = pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
CONJUGATE = pytest.mark.parametrize("case", EXPONENTIAL.values(), ids=EXPONENTIAL.keys())


def fisher(case: Divergence, params) -> np.ndarray:
    flat, unravel = ravel_pytree(params)
    return np.asarray(jax.jit(jax.hessian(lambda other: case.kl(case.approximation, params, unravel(other))))(flat))


@ALL
def test_natural_gradient_inverts_the_fisher_information(case, x64):
    """F n(F v) = F v for any v; where F is invertible that is n(g) = F^{-1} g. (It is not for the logits of a
    Dirichlet, whose sum has no meaning, nor for what lies above the diagonal of a Cholesky factor.)"""
    params, _ = members(case)
    unravel = ravel_pytree(params)[1]
    information = fisher(case, params)
    direction = np.random.default_rng(2).normal(size=len(information))
    gradient = information @ direction
    natural = ravel_pytree(jax.jit(case.approximation.natural)(params, unravel(gradient)))[0]
    np.testing.assert_allclose(information @ natural, gradient, rtol=1e-6, atol=1e-6 * np.abs(gradient).max())


@ALL
def test_squared_length_is_that_of_the_fisher_information(case, x64):
    params, _ = members(case)
    approximation, unravel = case.approximation, ravel_pytree(params)[1]
    information = fisher(case, params)
    step = unravel(np.random.default_rng(3).normal(size=len(information)))
    lengths = []
    for only in np.eye(approximation.num_factors):
        part = ravel_pytree(approximation.scale_by_factor(jnp.asarray(only), step))[0]
        lengths.append(part @ information @ part)
    np.testing.assert_allclose(jax.jit(approximation.squared_length)(params, step), lengths, rtol=1e-6)


@CONJUGATE
def test_on_a_conjugate_target_the_direction_leads_straight_there_in_natural_parameters(case, x64):
    """For a target in q's own family, natural gradient descent of KL(q || p) moves the natural parameters straight
    towards the target's, and at rate 1 all the way."""
    params, target = members(case)
    approximation = case.approximation
    natural_parameters = jax.jit(partial(case.natural_parameters, approximation))

    @jax.jit
    def direction(params):
        gradient = jax.grad(lambda params: -case.kl(approximation, params, target))(params)
        return approximation.natural(params, gradient)

    here, moving = jax.jvp(natural_parameters, (params,), (direction(params),))
    there = natural_parameters(target)
    np.testing.assert_allclose(here + moving, there, rtol=1e-6, atol=1e-6)


@CONJUGATE
def test_exact_steps_converge_to_a_conjugate_target_from_anywhere(case, x64):
    """The bound lets a Gaussian's mean move by 0.45 sd per step; once near, rate 1/2 halves the distance each time."""
    params, target = members(case, size=1.0)
    approximation, optimizer = case.approximation, isvi.natural_gradient(0.5)
    slope = jax.grad(lambda params: case.kl(approximation, params, target))

    state = optimizer.init(params)

    def step(_, params):
        updates, _ = optimizer.update(slope(params), state, params, approximation=approximation)
        return optax.apply_updates(params, updates)

    params = jax.jit(lambda params: jax.lax.fori_loop(0, 300, step, params))(params)
    assert float(jax.jit(partial(case.kl, approximation))(params, target)) < 1e-10


@ALL
@pytest.mark.parametrize(("max_kl", "most"), [(1e-4, 1.02), (0.1, 1.5)])
def test_no_step_is_longer_than_the_bound(case, max_kl, most, x64):
    """The KL is bounded to second order. Every factor by itself: the others are held."""
    params, _ = members(case)
    approximation, bound = case.approximation, isvi.bound_kl(max_kl)
    update = jax.jit(partial(bound.update, approximation=approximation))
    moved_by = jax.jit(lambda step: case.kl(approximation, params, optax.apply_updates(params, step)))
    for seed in range(5):
        wild = jiggled(jax.tree.map(jnp.zeros_like, params), seed, size=30.0)
        for only in np.eye(approximation.num_factors):
            one_factor = approximation.scale_by_factor(jnp.asarray(only), wild)
            step, _ = update(one_factor, bound.init(params), params)
            moved = float(moved_by(step))
            assert max_kl / most < moved < max_kl * most, moved / max_kl


@ALL
def test_a_short_step_is_left_alone(case):
    params, _ = members(case)
    short = jiggled(jax.tree.map(jnp.zeros_like, params), 0, size=1e-3)
    update = jax.jit(partial(isvi.bound_kl(0.1).update, approximation=case.approximation))
    step, _ = update(short, optax.EmptyState(), params)
    jax.tree.map(np.testing.assert_array_equal, step, short)


def test_the_step_does_not_depend_on_how_q_is_written(x64):
    """The same Gaussian with its entries in reverse has quite another Cholesky factor; the natural gradient moves mean
    and covariance the same way."""
    case = CASES["FullRank"]
    params, target = members(case)
    block: GaussianBlocks = case.approximation.pieces[0]

    def moments(params):
        return params.loc, params.cholesky[0] @ params.cholesky[0].T

    def mirrored(params):
        mean, covariance = moments(params)
        return block.match(mean[::-1], jnp.linalg.inv(covariance[::-1, ::-1]))

    def moving(params, target):
        gradient = jax.grad(lambda params: case.kl(case.approximation, params, target))(params)
        return jax.jvp(moments, (params,), (block.natural(params, gradient),))[1]

    mean, covariance = moving(params, target)
    far_mean, far_covariance = moving(mirrored(params), mirrored(target))
    np.testing.assert_allclose(far_mean, mean[::-1], rtol=1e-9)
    np.testing.assert_allclose(far_covariance, covariance[::-1, ::-1], rtol=1e-9)


def test_single_precision_at_the_concentrations_of_large_data():
    """Where the textbook's matrices cancel: relative to double precision."""
    alpha = np.array([3e5, 1e5, 40.0, 2e6])
    by_logits, by_log_total = np.array([30.0, -20.0, 5.0, -15.0]), 0.3
    answers = []
    for x64 in (True, False):
        with jax.enable_x64(x64):
            arguments = [jnp.asarray(value, float) for value in (alpha, by_logits, by_log_total)]
            logits, log_total = jax.jit(simplex_natural)(*arguments)
            length = jax.jit(simplex_squared_length)(arguments[0], logits, log_total)
            answers.append(np.array([*logits, log_total, length], np.float64))
    np.testing.assert_allclose(answers[1], answers[0], rtol=2e-3)
    params = GammaParams(jnp.zeros(1), jnp.full(1, np.log(1e6)))
    natural = GammaFactors(1).natural(params, GammaParams(jnp.ones(1), jnp.ones(1)))
    np.testing.assert_allclose(natural.log_concentration, 2.0, rtol=1e-4)  # the information is 1/2 + 1/(6e6)


def test_information_of_the_degrees_of_freedom():
    """Against the closed form in double precision, and where that has no digits left in single precision."""
    df = np.array([2.1, 3.0, 8.0, 20.0, 60.0, 200.0])
    with jax.enable_x64(True):
        trigammas = (polygamma(1, df / 2) - polygamma(1, (df + 1) / 2)) / 4
        exact = np.asarray(trigammas - (df + 5) / (2 * df * (df + 1) * (df + 3)))
        np.testing.assert_allclose(jax.jit(degrees_information)(jnp.asarray(df)), exact, rtol=1e-5)
    np.testing.assert_allclose(jax.jit(degrees_information)(jnp.asarray(df, jnp.float32)), exact, rtol=1e-4)


def test_composes_with_optax_and_with_fit():
    """Momentum between the natural gradient and the bound, on a correlated Gaussian of three dimensions. The
    estimator's noise vanishes at the posterior."""
    optimizer = optax.chain(
        isvi.scale_by_fisher(), optax.trace(0.5), optax.scale_by_learning_rate(0.05), isvi.bound_kl(0.05)
    )
    fit = isvi.fit(
        gaussian.model(),
        family=isvi.FullRank(),
        algorithm=isvi.SGD(),
        estimator=isvi.Reparameterization(entropy="sticking"),
        optimizer=optimizer,
        budget=1_000,
    )
    best = 0.5 * np.linalg.slogdet(2 * np.pi * np.linalg.inv(gaussian.PRECISION))[1]
    assert best - float(gaussian.exact_elbo(fit.approximation, fit.params)) < 1e-4


@pytest.mark.parametrize(("algorithm", "num_samples"), [(isvi.SGD(), 1), (isvi.ISGD(), 10)], ids=["SGD", "ISGD"])
def test_gamma_poisson_converges_with_nothing_tuned(algorithm, num_samples):
    """The posterior is Gamma(2 + sum, 1 + rows); q starts at a mean of 0.7 and an sd of 0.1. At a constant rate of 0.1,
    with an estimator whose noise vanishes at the posterior, 500 records reach it to rounding (measured: 1e-10)."""
    counts = np.random.default_rng(0).poisson(4.0, size=400)
    model = isvi.Model(
        latents={"rate": isvi.positive()},
        log_prior=lambda z: jnp.log(z["rate"]) - z["rate"],
        log_likelihood=lambda z, rows: jnp.sum(rows * jnp.log(z["rate"]) - z["rate"]),
    )
    fit = isvi.fit(
        model,
        counts,
        family=isvi.Gamma(),
        algorithm=algorithm,
        estimator=isvi.Reparameterization(entropy="sticking", num_samples=num_samples),
        optimizer=isvi.natural_gradient(0.1),
        budget=500 * num_samples,
    )
    a, rate = 2.0 + counts.sum(), 1.0 + len(counts)
    with jax.enable_x64(True):
        exact = GammaParams(jnp.log(jnp.array([a / rate])), jnp.log(jnp.array([a])))
        here = jax.tree.map(lambda leaf: jnp.asarray(np.asarray(leaf), float), fit.params)
        assert float(CASES["Gamma"].kl(fit.approximation, here, exact)) < 1e-6


def test_without_an_approximation_it_says_what_is_missing():
    params = {"x": jnp.ones(2)}
    optimizer = isvi.natural_gradient(0.1)
    with pytest.raises(isvi.ConfigurationError, match="approximation=approximation"):
        optimizer.update(params, optimizer.init(params), params)


def test_a_bound_must_be_positive():
    with pytest.raises(isvi.ConfigurationError, match="max_kl"):
        isvi.natural_gradient(0.1, max_kl=0.0)
