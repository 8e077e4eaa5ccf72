"""Regressions, in PyMC."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt

from benchmarks.models.shared import named_alike


def robust_regression(x, y):
    with pm.Model() as model:
        rows = {"x": pm.Data("x", x), "y": pm.Data("y_observed", y)}
        alpha = pm.Normal("alpha", 0, 10)
        beta = pm.Normal("beta", 0, 10)
        sigma = pm.HalfCauchy("sigma", 2.5)
        nu = pm.Gamma("nu", 2, 0.1)
        pm.StudentT("y", nu=nu, mu=alpha + beta * rows["x"], sigma=sigma, observed=rows["y"])
    return model


def two_groups(group, y):
    with pm.Model(coords={"group": ["drug", "placebo"]}) as model:
        mean = pm.Normal("mean", 101, 10, dims="group")
        std = pm.Uniform("std", 1, 20, dims="group")
        nu_minus_one = pm.Exponential("nu_minus_one", 1 / 29.0)
        pm.Deterministic("difference of means", mean[0] - mean[1])
        pm.StudentT("y", nu=nu_minus_one + 1, mu=mean[group], sigma=std[group], observed=y)
    return model


def _horseshoe_prior(dim):
    lambdas = pm.HalfCauchy("lambdas", 1, shape=dim)
    tau = pm.HalfCauchy("tau", 1, shape=1)
    unscaled = pm.Normal("unscaled_betas", 0, 1, shape=dim)
    return pm.Deterministic("betas", tau * lambdas * unscaled)


def horseshoe(X, Y):
    with pm.Model() as model:
        betas = _horseshoe_prior(X.shape[1])
        precision = pm.Gamma("prec_obs", 3, 1)
        pm.Normal("Y", pt.dot(X, betas), tau=precision, observed=Y)
    return model


def horseshoe_bernoulli(X, Y):
    with pm.Model() as model:
        betas = _horseshoe_prior(X.shape[1])
        pm.Bernoulli("Y", logit_p=pt.dot(X, betas), observed=Y)
    return model


def earnings_in_dollars(height, earnings):
    with pm.Model() as model:
        beta = pm.Flat("beta", shape=2)
        sigma = pm.HalfFlat("sigma")
        pm.Normal("earn", beta[0] + beta[1] * height, sigma, observed=earnings)
    return model


def zero_inflated_poisson(X, Y):
    with pm.Model() as model:
        b1 = pm.Normal("b1", 0, 1, shape=X.shape[1])
        b2 = pm.Normal("b2", 0, 1, shape=X.shape[1])
        a1 = pm.Normal("a1", 0, 1)
        a2 = pm.Normal("a2", 0, 1)
        psi = 1 - pm.math.invlogit(pt.dot(X, b1) + a1)
        pm.ZeroInflatedPoisson("Y", psi=psi, mu=pt.exp(pt.dot(X, b2) + a2), observed=Y)
    return model


def negative_binomial(X, y):
    with pm.Model() as model:
        alpha = pm.Normal("alpha", 0, 5)
        beta = pm.Normal("beta", 0, 2.5, shape=X.shape[1])
        inv_phi = pm.Exponential("inv_phi", 1)
        pm.NegativeBinomial("y", mu=pt.exp(alpha + pt.dot(X, beta)), alpha=1 / inv_phi, observed=y)
    return model


def _line(x):
    slope = pm.Normal("slope", 0, 1)
    intercept = pm.Normal("intercept", 0, 1)
    return pm.Normal.dist(intercept + slope * x, pm.HalfNormal("sigma", 1))


def tobit(x, y):
    with pm.Model() as model:
        pm.Censored("y", _line(x), lower=0.0, upper=2.5, observed=y)
    return model


def truncated(x, y):
    with pm.Model() as model:
        pm.Truncated("y", _line(x), lower=0.0, observed=y)
    return model


def weibull_survival(x, time, event):
    with pm.Model() as model:
        shape = pm.HalfNormal("shape", 5)
        intercept = pm.Normal("intercept", 0, 5)
        beta = pm.Normal("beta", 0, 2, shape=x.shape[1])
        scale = pt.exp(intercept + pt.dot(x, beta))
        died = event == 1
        pm.Weibull("time", alpha=shape, beta=scale[died], observed=time[died])
        pm.Potential("survived", -((time[~died] / scale[~died]) ** shape))
    return model


def missing_predictors(age, survived):
    """PyMC makes latents of what is masked."""
    standard = (age - np.nanmean(age)) / np.nanstd(age)
    with pm.Model() as model:
        age_mu = pm.Normal("age_mu", 0, 1)
        age_sigma = pm.HalfNormal("age_sigma", 1)
        filled = pm.Normal("age", age_mu, age_sigma, observed=np.ma.masked_invalid(standard))
        a = pm.Normal("a", 0, 5)
        b_age = pm.Normal("b_age", 0, 1)
        pm.Bernoulli("survived", logit_p=a + b_age * filled, observed=survived)
    return model


def bnn(X, Y, D_H):
    with pm.Model() as model:
        w1 = pm.Normal("w1", 0, 1, shape=(X.shape[1], D_H))
        w2 = pm.Normal("w2", 0, 1, shape=(D_H, D_H))
        w3 = pm.Normal("w3", 0, 1, shape=(D_H, 1))
        precision = pm.Gamma("prec_obs", 3, 1)
        hidden = pt.tanh(pt.dot(pt.tanh(pt.dot(X, w1)), w2))
        pm.Normal("Y", pt.dot(hidden, w3), tau=precision, observed=Y)
    return model


MODELS = (
    robust_regression, two_groups, horseshoe, horseshoe_bernoulli, earnings_in_dollars, zero_inflated_poisson,
    negative_binomial, tobit, truncated, weibull_survival, missing_predictors, bnn,
)  # fmt: skip
CASES = named_alike({model.__name__: model for model in MODELS})
