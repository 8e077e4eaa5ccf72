"""Regressions: robust, sparse, on raw scales, censored, ordinal, of counts and of times, with missing predictors."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax.scipy.special import expit
from numpyro.distributions import transforms
from numpyro.infer import init_to_median

from benchmarks.models.case import Case, Data


def line_with_outliers() -> Data:
    rng = np.random.default_rng(21)
    x = rng.normal(size=100)
    return Data({"x": x, "y": 1 + 2 * x + 0.5 * rng.standard_t(2.5, size=100)})


def robust_regression(x, y=None):
    alpha = numpyro.sample("alpha", dist.Normal(0, 10))
    beta = numpyro.sample("beta", dist.Normal(0, 10))
    sigma = numpyro.sample("sigma", dist.HalfCauchy(2.5))
    nu = numpyro.sample("nu", dist.Gamma(2, 0.1))
    with numpyro.plate("data", x.shape[0]):
        numpyro.sample("y", dist.StudentT(nu, alpha + beta * x, sigma), obs=y)


def two_samples() -> Data:
    rng = np.random.default_rng(22)
    group = np.repeat([0, 1], [47, 42])
    spread = np.array([6.0, 2.5])
    return Data({"group": group, "y": np.array([101.5, 100.5])[group] + spread[group] * rng.standard_t(4, size=89)})


def two_groups(group, y=None):
    """Kruschke's comparison of two groups: normal means, uniform sds, shared degrees of freedom above one."""
    with numpyro.plate("groups", 2):
        mean = numpyro.sample("mean", dist.Normal(101, 10))
        std = numpyro.sample("std", dist.Uniform(1, 20))
    nu_minus_one = numpyro.sample("nu_minus_one", dist.Exponential(1 / 29.0))
    nu = numpyro.deterministic("nu", nu_minus_one + 1)
    numpyro.deterministic("difference of means", mean[0] - mean[1])
    numpyro.deterministic("effect size", (mean[0] - mean[1]) / jnp.sqrt((std[0] ** 2 + std[1] ** 2) / 2))
    numpyro.sample("y", dist.StudentT(nu, mean[group], std[group]), obs=y)


def few_of_many(size: int, dim: int, binary: bool) -> Data:
    rng = np.random.default_rng(23)
    x = rng.normal(size=(size, dim))
    beta = np.zeros(dim)
    beta[:5] = [3.0, -2.0, 1.5, 1.0, 0.5]
    loc = x @ beta
    y = rng.binomial(1, expit(loc)) if binary else loc + rng.normal(size=size)
    return Data({"X": x, "Y": np.asarray(y)})


def horseshoe_prior(dim):
    lambdas = numpyro.sample("lambdas", dist.HalfCauchy(jnp.ones(dim)))
    tau = numpyro.sample("tau", dist.HalfCauchy(jnp.ones(1)))
    unscaled_betas = numpyro.sample("unscaled_betas", dist.Normal(0.0, jnp.ones(dim)))
    return numpyro.deterministic("betas", tau * lambdas * unscaled_betas)


def horseshoe(X, Y=None):
    betas = horseshoe_prior(X.shape[1])
    mean_function = jnp.dot(X, betas)
    prec_obs = numpyro.sample("prec_obs", dist.Gamma(3.0, 1.0))
    sigma_obs = 1.0 / jnp.sqrt(prec_obs)
    numpyro.sample("Y", dist.Normal(mean_function, sigma_obs), obs=Y)


def horseshoe_bernoulli(X, Y=None):
    betas = horseshoe_prior(X.shape[1])
    numpyro.sample("Y", dist.Bernoulli(logits=jnp.dot(X, betas)), obs=Y)


def interactions_data() -> Data:
    rng = np.random.default_rng(24)
    x = rng.normal(size=(100, 30))
    y = 1.5 * x[:, 0] - x[:, 1] + 0.8 * x[:, 2] * x[:, 3] + 0.4 * rng.normal(size=100)
    y = (y - y.mean()) / y.std()
    return Data(None, {"X": x, "Y": y, "hypers": {"expected_sparsity": 4.0, "alpha1": 3.0, "beta1": 1.0, "c": 1.0}})


def _interaction_kernel(X, Z, eta1, eta2, c, jitter=1.0e-4):
    """Of all main effects and pairs, summed in closed form."""
    dot = X @ Z.T
    k1 = 0.5 * jnp.square(eta2) * jnp.square(1.0 + dot)
    k2 = -0.5 * jnp.square(eta2) * (jnp.square(X) @ jnp.square(Z).T)
    k3 = (jnp.square(eta1) - jnp.square(eta2)) * dot
    k4 = jnp.square(c) - 0.5 * jnp.square(eta2)
    return k1 + k2 + k3 + k4 + jitter * jnp.eye(X.shape[0])


def sparse_interactions(X, Y, hypers):
    S, P, N = hypers["expected_sparsity"], X.shape[1], X.shape[0]
    sigma = numpyro.sample("sigma", dist.HalfNormal(hypers["alpha1"]))
    phi = sigma * (S / jnp.sqrt(N)) / (P - S)
    eta1 = numpyro.sample("eta1", dist.HalfCauchy(phi))
    msq = numpyro.sample("msq", dist.InverseGamma(hypers["alpha1"], hypers["beta1"]))
    xisq = numpyro.sample("xisq", dist.InverseGamma(hypers["alpha1"], hypers["beta1"]))
    eta2 = jnp.square(eta1) * jnp.sqrt(xisq) / msq
    lam = numpyro.sample("lambda", dist.HalfCauchy(jnp.ones(P)))
    kappa = jnp.sqrt(msq) * lam / jnp.sqrt(msq + jnp.square(eta1 * lam))
    kX = kappa * X
    k = _interaction_kernel(kX, kX, eta1, eta2, hypers["c"]) + jnp.square(sigma) * jnp.eye(N)
    numpyro.sample("Y", dist.MultivariateNormal(loc=jnp.zeros(N), covariance_matrix=k), obs=Y)


def dollars() -> Data:
    """1,192 incomes in dollars and heights in inches."""
    rng = np.random.default_rng(25)
    height = np.round(rng.normal(66.6, 3.8, size=1192))
    earnings = np.round(np.maximum(200.0, -61_000 + 1_260 * height + 17_500 * rng.normal(size=1192)), -2)
    return Data({"height": height, "earnings": earnings})


def earnings(height, earnings=None):
    beta = numpyro.sample("beta", dist.ImproperUniform(dist.constraints.real, (), (2,)))
    sigma = numpyro.sample("sigma", dist.ImproperUniform(dist.constraints.positive, (), ()))
    numpyro.sample("earn", dist.Normal(beta[0] + beta[1] * height, sigma), obs=earnings)


def many_zeros() -> Data:
    rng = np.random.default_rng(26)
    x = rng.normal(size=(500, 3))
    gate = rng.binomial(1, expit(-0.8 + x @ [0.7, 0.0, -0.5]))
    return Data({"X": x, "Y": np.where(gate == 1, 0, rng.poisson(np.exp(0.8 + x @ [0.5, -0.3, 0.0])))})


def zero_inflated(X, Y=None):
    D_X = X.shape[1]
    b1 = numpyro.sample("b1", dist.Normal(0.0, 1.0).expand([D_X]).to_event(1))
    b2 = numpyro.sample("b2", dist.Normal(0.0, 1.0).expand([D_X]).to_event(1))
    a1 = numpyro.sample("a1", dist.Normal(0.0, 1.0))
    a2 = numpyro.sample("a2", dist.Normal(0.0, 1.0))
    gate = jnp.dot(X, b1) + a1
    lam = jnp.dot(X, b2) + a2
    with numpyro.plate("obs", X.shape[0]):
        numpyro.sample("Y", dist.ZeroInflatedPoisson(gate=expit(gate), rate=jnp.exp(lam)), obs=Y)


def overdispersed() -> Data:
    rng = np.random.default_rng(27)
    x = rng.normal(size=(400, 4))
    rate = np.exp(1.0 + x @ [0.4, -0.2, 0.1, 0.0])
    return Data({"X": x, "y": rng.negative_binomial(1.5, 1.5 / (1.5 + rate))})


def negative_binomial(X, y=None):
    alpha = numpyro.sample("alpha", dist.Normal(0, 5))
    beta = numpyro.sample("beta", dist.Normal(0, 2.5).expand([X.shape[1]]).to_event(1))
    inv_phi = numpyro.sample("inv_phi", dist.Exponential(1.0))
    with numpyro.plate("N", X.shape[0]):
        numpyro.sample("y", dist.NegativeBinomial2(jnp.exp(alpha + X @ beta), 1 / inv_phi), obs=y)


def ratings() -> Data:
    rng = np.random.default_rng(28)
    x = rng.normal(size=(300, 2))
    latent = x @ [1.0, -0.6] + rng.logistic(size=300)
    return Data({"X": x, "Y": np.digitize(latent, [-2.0, -0.5, 0.8, 2.5])}, {"nclasses": 5})


def ordinal(X, Y=None, nclasses=5, concentration=1.0):
    """Cut points whose prior is that of class probabilities at an anchor: an induced Dirichlet."""
    concentration = jnp.ones((nclasses,)) * concentration
    b = numpyro.sample("b", dist.Normal(0, 2).expand([X.shape[1]]).to_event(1))
    prior = dist.TransformedDistribution(dist.Dirichlet(concentration), transforms.SimplexToOrderedTransform(0.0))
    cutpoints = numpyro.sample("cutpoints", prior)
    with numpyro.plate("obs", X.shape[0]):
        numpyro.sample("Y", dist.OrderedLogistic(X @ b, cutpoints), obs=Y)


def tobit_data() -> Data:
    rng = np.random.default_rng(29)
    x = rng.normal(size=200)
    y = 0.5 + 1.2 * x + rng.normal(size=200)
    return Data({"x": x, "y": np.clip(y, 0.0, 2.5)})


def tobit(x, y=None, low=0.0, high=2.5):
    slope = numpyro.sample("slope", dist.Normal(0, 1))
    intercept = numpyro.sample("intercept", dist.Normal(0, 1))
    sigma = numpyro.sample("sigma", dist.HalfNormal(1))
    mu = intercept + slope * x
    base = dist.Normal(mu, sigma)
    below, above = y <= low, y >= high
    with numpyro.handlers.mask(mask=~(below | above)):
        numpyro.sample("y", base, obs=y)
    log_tail = jnp.where(below, base.cdf(low), jnp.where(above, 1 - base.cdf(high), 1.0))
    numpyro.factor("censored", jnp.log(jnp.clip(log_tail, 1e-30)))


def truncated_data() -> Data:
    rng = np.random.default_rng(30)
    x = rng.normal(size=800)
    y = 0.5 + 1.2 * x + rng.normal(size=800)
    kept = y > 0
    return Data({"x": x[kept][:300], "y": y[kept][:300]})


def truncated(x, y=None):
    slope = numpyro.sample("slope", dist.Normal(0, 1))
    intercept = numpyro.sample("intercept", dist.Normal(0, 1))
    sigma = numpyro.sample("sigma", dist.HalfNormal(1))
    numpyro.sample("y", dist.LeftTruncatedDistribution(dist.Normal(intercept + slope * x, sigma), low=0.0), obs=y)


def survival_data() -> Data:
    rng = np.random.default_rng(31)
    x = np.column_stack([rng.binomial(1, 0.5, 250), rng.normal(size=250)])
    time = np.exp(2.0 + x @ [0.5, -0.3]) * rng.weibull(1.4, size=250)
    limit = rng.uniform(2, 20, 250)
    return Data({"x": x.astype(float), "time": np.minimum(time, limit), "event": (time <= limit).astype(float)})


def weibull_survival(x, time=None, event=None):
    shape = numpyro.sample("shape", dist.HalfNormal(5))
    intercept = numpyro.sample("intercept", dist.Normal(0, 5))
    beta = numpyro.sample("beta", dist.Normal(0, 2).expand([x.shape[1]]).to_event(1))
    scale = jnp.exp(intercept + x @ beta)
    with numpyro.plate("patients", x.shape[0]):
        with numpyro.handlers.mask(mask=event == 1):
            numpyro.sample("time", dist.Weibull(scale, shape), obs=time)
        numpyro.factor("survived", jnp.where(event == 1, 0.0, -((time / scale) ** shape)))


def piecewise_exponential(x, time=None, event=None):
    cuts = jnp.array([0.0, 2.0, 4.0, 6.0, 9.0, 20.0])
    with numpyro.plate("intervals", 5):
        hazard = numpyro.sample("hazard", dist.Gamma(0.1, 0.1))
    beta = numpyro.sample("beta", dist.Normal(0, 2).expand([2]).to_event(1))
    exposure = jnp.clip(time[:, None] - cuts[:-1], 0.0, jnp.diff(cuts))
    died = (time[:, None] > cuts[:-1]) & (time[:, None] <= cuts[1:]) & (event[:, None] == 1)
    rate = hazard * jnp.exp(x @ beta)[:, None] * exposure
    log_likelihood = dist.Poisson(jnp.maximum(rate, 1e-10)).log_prob(died.astype(int))
    numpyro.factor("likelihood", jnp.where(exposure > 0, log_likelihood, 0.0).sum(axis=1))


def with_gaps() -> Data:
    rng = np.random.default_rng(32)
    age = rng.normal(30, 12, size=200)
    survived = rng.binomial(1, expit(0.4 - 0.6 * (age - 30) / 12))
    age[rng.random(200) < 0.2] = np.nan
    return Data(None, {"age": age, "survived": survived})


def missing_predictors(age, survived=None):
    """Ages that were not written down are latents."""
    age_mu = numpyro.sample("age_mu", dist.Normal(0, 1))
    age_sigma = numpyro.sample("age_sigma", dist.HalfNormal(1))
    missing = np.isnan(np.asarray(age))
    standard = (np.asarray(age) - np.nanmean(age)) / np.nanstd(age)
    age_impute = numpyro.sample("age_impute", dist.Normal(age_mu, age_sigma).expand([missing.sum()]).mask(False))
    filled = jnp.asarray(np.nan_to_num(standard)).at[np.nonzero(missing)[0]].set(age_impute)
    numpyro.sample("age", dist.Normal(age_mu, age_sigma), obs=filled)
    a = numpyro.sample("a", dist.Normal(0, 5))
    b_age = numpyro.sample("b_age", dist.Normal(0, 1))
    numpyro.sample("survived", dist.Bernoulli(logits=a + b_age * filled), obs=survived)


def brains() -> Data:
    """17 species with three measurements, of which twelve values are missing."""
    rng = np.random.default_rng(33)
    mean = rng.multivariate_normal(np.zeros(3), [[1.0, 0.6, 0.5], [0.6, 1.0, 0.3], [0.5, 0.3, 1.0]], size=40)
    y = 0.5 * mean[:, 0] - 0.6 * mean[:, 1] + 0.5 * rng.normal(size=40)
    missing = rng.random(40) < 0.3
    return Data(None, {"x": np.where(missing[:, None] & np.array([True, False, False]), 0.0, mean), "y": y,
                       "missing": np.nonzero(missing)[0]})  # fmt: skip


def missing_lkj(x, y, missing):
    """All predictors are multivariate normal, with LKJ correlations; those missing are latents."""
    a = numpyro.sample("a", dist.Normal(0, 0.5))
    b = numpyro.sample("b", dist.Normal(0, 0.5).expand([2]).to_event(1))
    mu = numpyro.sample("mu", dist.Normal(0, 0.5).expand([3]).to_event(1))
    sigma_x = numpyro.sample("sigma_x", dist.Exponential(1).expand([3]).to_event(1))
    Rho = numpyro.sample("Rho", dist.LKJ(3, 2))
    sigma = numpyro.sample("sigma", dist.Exponential(1))
    imputed = numpyro.sample("imputed", dist.ImproperUniform(dist.constraints.real_vector, (), (missing.shape[0],)))
    filled = x.at[missing, 0].set(imputed) if hasattr(x, "at") else jnp.asarray(x).at[missing, 0].set(imputed)
    cov = jnp.outer(sigma_x, sigma_x) * Rho
    numpyro.sample("x", dist.MultivariateNormal(mu, cov), obs=filled)
    numpyro.sample("y", dist.Normal(a + filled[:, :2] @ b, sigma), obs=y)


def nonlinear() -> Data:
    rng = np.random.default_rng(34)
    x = np.linspace(-1, 1, 100)
    y = 0.5 * np.sin(4 * x) + x**2 + 0.1 * rng.normal(size=100)
    design = np.power(x[:, None], np.arange(3))
    y = (y - y.mean()) / y.std()
    return Data({"X": design, "Y": y[:, None]}, {"D_H": 5})


def bnn(X, Y, D_H, D_Y=1):
    """Two hidden layers, tanh, a prior on the precision of the noise; 46 latents."""
    N, D_X = X.shape
    w1 = numpyro.sample("w1", dist.Normal(jnp.zeros((D_X, D_H)), jnp.ones((D_X, D_H))))
    z1 = jnp.tanh(jnp.matmul(X, w1))
    w2 = numpyro.sample("w2", dist.Normal(jnp.zeros((D_H, D_H)), jnp.ones((D_H, D_H))))
    z2 = jnp.tanh(jnp.matmul(z1, w2))
    w3 = numpyro.sample("w3", dist.Normal(jnp.zeros((D_H, D_Y)), jnp.ones((D_H, D_Y))))
    z3 = jnp.matmul(z2, w3)
    prec_obs = numpyro.sample("prec_obs", dist.Gamma(3.0, 1.0))
    sigma_obs = 1.0 / jnp.sqrt(prec_obs)
    with numpyro.plate("data", N):
        numpyro.sample("Y", dist.Normal(z3, sigma_obs).to_event(1), obs=Y)


CASES = (
    Case("robust_regression", robust_regression, line_with_outliers, "heavy tails", {"samples": 2500}),
    Case("two_groups", two_groups, two_samples, "group differences", {"samples": 2500}),
    Case(
        "horseshoe",
        horseshoe,
        lambda: few_of_many(100, 20, False),
        "heavy tails, funnels; must not diverge",
        {"target": 0.98, "warm_up": 2000, "samples": 4000},
    ),
    Case(
        "horseshoe_100",
        horseshoe,
        lambda: few_of_many(150, 100, False),
        "heavy tails, funnels; must not diverge",
        {"target": 0.98, "warm_up": 1500, "samples": 1500},
    ),
    Case(
        "horseshoe_bernoulli",
        horseshoe_bernoulli,
        lambda: few_of_many(300, 20, True),
        "heavy tails, funnels; must not diverge",
        {"target": 0.98, "warm_up": 2000, "samples": 4000, "init": init_to_median},
    ),
    Case(
        "sparse_interactions",
        sparse_interactions,
        interactions_data,
        "dense algebra in the model",
        {"target": 0.95, "samples": 1000},
    ),
    Case(
        "earnings_in_dollars", earnings, dollars, "scales of 20,000 with flat priors", {"samples": 2500, "dense": True}
    ),
    Case("zero_inflated_poisson", zero_inflated, many_zeros, "mixture", {"samples": 1500}),
    Case("negative_binomial", negative_binomial, overdispersed, "dispersion", {"samples": 1500}),
    Case("ordinal", ordinal, ratings, "ordered latents", {"samples": 1500}),
    Case("tobit", tobit, tobit_data, "tails", {"samples": 1500}),
    Case("truncated", truncated, truncated_data, "tails", {"samples": 1500}),
    Case("weibull_survival", weibull_survival, survival_data, "positive data", {"samples": 1500}),
    Case("piecewise_exponential", piecewise_exponential, survival_data, "positive data", {"samples": 1500}),
    Case("missing_predictors", missing_predictors, with_gaps, "NaN in data, latents per row", {"samples": 1500}),
    Case("missing_lkj", missing_lkj, brains, "NaN in data, latents per row", {"samples": 1500}),
    Case("bnn", bnn, nonlinear, "many optima; must not diverge", {"target": 0.95, "samples": 1500}),
)
