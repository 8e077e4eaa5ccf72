"""Series, mixtures and functions, in PyMC."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt

from benchmarks.models.shared import named_alike


def mixture(x):
    with pm.Model(coords={"component": np.arange(3)}) as model:
        w = pm.Dirichlet("w", np.ones(3), dims="component")
        ordered = pm.distributions.transforms.ordered
        mu = pm.Normal("mu", 0, 5, transform=ordered, initval=[-1.0, 0.0, 1.0], dims="component")
        sigma = pm.HalfNormal("sigma", 2, dims="component")
        pm.NormalMixture("x", w=w, mu=mu, sigma=sigma, observed=x)
    return model


def stochastic_volatility(returns):
    with pm.Model(coords={"day": np.arange(len(returns))}) as model:
        step_size = pm.Exponential("sigma", 50)
        s = pm.GaussianRandomWalk("s", sigma=step_size, init_dist=pm.Normal.dist(0, step_size), dims="day")
        nu = pm.Exponential("nu", 0.1)
        pm.StudentT("r", nu=nu, sigma=pt.exp(s), observed=returns)
    return model


def ar1_scan(y):
    with pm.Model() as model:
        alpha = pm.Normal("alpha", 0, 1)
        phi = pm.Normal("phi", 0, 1)
        sigma = pm.HalfNormal("sigma", 1)
        first = pm.Normal.dist(0, 100)
        pm.AR("y", rho=pt.stack([alpha, phi]), sigma=sigma, constant=True, init_dist=first, observed=y)
    return model


def gaussian_process(X, Y):
    with pm.Model() as model:
        var = pm.LogNormal("kernel_var", 0, 10)
        noise = pm.LogNormal("kernel_noise", 0, 10)
        length = pm.LogNormal("kernel_length", 0, 10)
        gp = pm.gp.Marginal(cov_func=var * pm.gp.cov.ExpQuad(1, ls=length))
        gp.marginal_likelihood("Y", X=X[:, None], y=Y, sigma=pt.sqrt(noise))
    return model


def latent_gp_poisson(x, y):
    with pm.Model() as model:
        rho = pm.InverseGamma("rho", alpha=5, beta=5)
        alpha = pm.HalfNormal("alpha", 1)
        intercept = pm.Normal("intercept", 0, 2)
        eta = pm.Normal("eta", 0, 1, shape=len(x))
        cov = alpha**2 * pm.gp.cov.ExpQuad(1, ls=rho)(x[:, None]) + 1e-5 * pt.eye(len(x))
        f = pm.Deterministic("f", pt.linalg.cholesky(cov) @ eta)
        pm.Poisson("y", pt.exp(intercept + f), observed=y)
    return model


def change_point(counts):
    """The year is summed out by hand."""
    years = np.arange(len(counts))
    with pm.Model() as model:
        early = pm.Exponential("early", 1)
        late = pm.Exponential("late", 1)
        rate = pt.switch(years < years[:, None], early, late)
        by_year = pm.logp(pm.Poisson.dist(rate), counts).sum(axis=1)
        pm.Potential("counts", pm.math.logsumexp(by_year) - np.log(len(counts)))
    return model


MODELS = (mixture, stochastic_volatility, ar1_scan, gaussian_process, latent_gp_poisson, change_point)
CASES = named_alike({model.__name__: model for model in MODELS})
