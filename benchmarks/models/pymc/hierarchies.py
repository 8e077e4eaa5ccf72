"""Groups that learn from each other, in PyMC."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt

from benchmarks.models.shared import named_alike


def baseball_pooled(at_bats, hits):
    with pm.Model() as model:
        phi = pm.Uniform("phi", 0, 1)
        pm.Binomial("obs", at_bats, phi, observed=hits)
    return model


def baseball_partial(at_bats, hits):
    with pm.Model(coords={"player": np.arange(len(hits))}) as model:
        m = pm.Uniform("m", 0, 1)
        kappa = pm.Pareto("kappa", alpha=1.5, m=1)
        phi = pm.Beta("phi", alpha=m * kappa, beta=(1 - m) * kappa, dims="player")
        pm.Binomial("obs", at_bats, phi, observed=hits, dims="player")
    return model


def baseball_logit(at_bats, hits):
    with pm.Model(coords={"player": np.arange(len(hits))}) as model:
        loc = pm.Normal("loc", -1, 1)
        scale = pm.HalfCauchy("scale", 1)
        offset = pm.Normal("alpha_decentered", 0, 1, dims="player")
        alpha = pm.Deterministic("alpha", loc + scale * offset, dims="player")
        pm.Binomial("obs", at_bats, logit_p=alpha, observed=hits, dims="player")
    return model


def rat_tumours(n, y):
    with pm.Model() as model:
        a = pm.HalfFlat("a", initval=1.0)
        b = pm.HalfFlat("b", initval=10.0)
        pm.Potential("prior", -2.5 * pt.log(a + b))
        theta = pm.Beta("theta", a, b, shape=len(n))
        pm.Binomial("y", n, theta, observed=y)
    return model


def _counties(num_counties):
    return {"county": np.arange(num_counties), "effect": ["intercept", "floor"]}


def radon(county, floor, log_radon, num_counties):
    with pm.Model(coords=_counties(num_counties)) as model:
        index = pm.Data("county_index", county)
        on_floor = pm.Data("on_floor", floor)
        mu_a = pm.Normal("mu_a", 0, 1)
        sigma_a = pm.HalfCauchy("sigma_a", 1)
        mu_b = pm.Normal("mu_b", 0, 1)
        sigma_b = pm.HalfCauchy("sigma_b", 1)
        a = pm.Normal("a", mu_a, sigma_a, dims="county")
        b = pm.Normal("b", mu_b, sigma_b, dims="county")
        eps = pm.HalfCauchy("eps", 1)
        pm.Normal("obs", a[index] + b[index] * on_floor, eps, observed=log_radon)
    return model


def radon_noncentered(county, floor, log_radon, num_counties):
    with pm.Model(coords=_counties(num_counties)) as model:
        mu_a = pm.Normal("mu_a", 0, 1)
        sigma_a = pm.HalfCauchy("sigma_a", 1)
        mu_b = pm.Normal("mu_b", 0, 1)
        sigma_b = pm.HalfCauchy("sigma_b", 1)
        a = mu_a + sigma_a * pm.Normal("a_decentered", 0, 1, dims="county")
        b = mu_b + sigma_b * pm.Normal("b_decentered", 0, 1, dims="county")
        eps = pm.HalfCauchy("eps", 1)
        pm.Normal("obs", a[county] + b[county] * floor, eps, observed=log_radon)
    return model


def radon_lkj(county, floor, log_radon, num_counties):
    with pm.Model(coords=_counties(num_counties)) as model:
        mu = pm.Normal("mu", 0, 5, dims="effect")
        scales = pm.HalfNormal.dist(1.0, size=2)
        chol, _, stds = pm.LKJCholeskyCov("packed", n=2, eta=2.0, sd_dist=scales, compute_corr=True)
        pm.Deterministic("sd", stds)
        z = pm.Normal("z", 0, 1, dims=("county", "effect"))
        effects = pm.Deterministic("effects", mu + pt.dot(z, chol.T), dims=("county", "effect"))
        sigma = pm.Exponential("sigma", 1)
        pm.Normal("obs", effects[county, 0] + effects[county, 1] * floor, sigma, observed=log_radon)
    return model


def sleepstudy(days, subject, reaction, num_subjects):
    """As Bambi builds `Reaction ~ Days + (Days | Subject)`."""
    with pm.Model(coords={"subject": np.arange(num_subjects)}) as model:
        intercept = pm.Normal("Intercept", 298.5, 261.7)
        slope = pm.Normal("Days", 0, 48.9)
        intercept_sigma = pm.HalfNormal("1|Subject_sigma", 261.7)
        slope_sigma = pm.HalfNormal("Days|Subject_sigma", 48.9)
        intercepts = intercept_sigma * pm.Normal("1|Subject_offset", 0, 1, dims="subject")
        slopes = slope_sigma * pm.Normal("Days|Subject_offset", 0, 1, dims="subject")
        pm.Deterministic("1|Subject", intercepts, dims="subject")
        pm.Deterministic("Days|Subject", slopes, dims="subject")
        sigma = pm.HalfStudentT("sigma", nu=4, sigma=56.2)
        mu = intercept + slope * (days - 4.5) + intercepts[subject] + slopes[subject] * days
        pm.Normal("Reaction", mu, sigma, observed=reaction)
    return model


def rugby(home, away, home_points, away_points):
    with pm.Model(coords={"team": np.arange(6)}) as model:
        home_team, away_team = pm.Data("home_team", home), pm.Data("away_team", away)
        advantage = pm.Normal("home_advantage", 0, 1)
        intercept = pm.Normal("intercept", 3, 1)
        sd_att = pm.HalfNormal("sd_att", 2)
        sd_def = pm.HalfNormal("sd_def", 2)
        atts_star = pm.Normal("atts_star", 0, sd_att, dims="team")
        defs_star = pm.Normal("defs_star", 0, sd_def, dims="team")
        atts = pm.Deterministic("atts", atts_star - pt.mean(atts_star), dims="team")
        defs = pm.Deterministic("defs", defs_star - pt.mean(defs_star), dims="team")
        home_theta = pt.exp(intercept + advantage + atts[home_team] + defs[away_team])
        away_theta = pt.exp(intercept + atts[away_team] + defs[home_team])
        pm.Poisson("home_points", home_theta, observed=home_points)
        pm.Poisson("away_points", away_theta, observed=away_points)
    return model


def item_response(student, item, correct, num_students, num_items):
    with pm.Model(coords={"student": np.arange(num_students), "item": np.arange(num_items)}) as model:
        sigma_b = pm.HalfCauchy("sigma_b", 2)
        mu_b = pm.Normal("mu_b", 0, 2)
        sigma_a = pm.HalfCauchy("sigma_a", 2)
        theta = pm.Normal("theta", 0, 1, dims="student")
        b = pm.Normal("b", mu_b, sigma_b, dims="item")
        a = pm.LogNormal("a", 0, sigma_a, dims="item")
        pm.Bernoulli("correct", logit_p=a[item] * (theta[student] - b[item]), observed=correct)
    return model


def spatial_counts(adjacency, expected, x, y):
    with pm.Model() as model:
        alpha = pm.Normal("alpha", 0, 2)
        beta = pm.Normal("beta", 0, 1)
        tau = pm.Gamma("tau", 2, 2)
        rho = pm.Uniform("rho", 0, 1)
        phi = pm.CAR("phi", mu=np.zeros(60), W=adjacency, alpha=rho, tau=tau)
        pm.Poisson("y", expected * pt.exp(alpha + beta * x + phi), observed=y)
    return model


def funnel(dim):
    with pm.Model() as model:
        y = pm.Normal("y", 0, 3)
        pm.Normal("x", 0, pt.exp(y / 2), shape=dim - 1)
    return model


def poll(state, age, education, ethnicity, male, y, past_vote):
    groups = {"state": (state, 51), "age": (age, 6), "education": (education, 5), "ethnicity": (ethnicity, 4)}
    with pm.Model(coords={name: np.arange(size) for name, (_, size) in groups.items()}) as model:
        logits = pm.Normal("intercept", 0, 1) + pm.Normal("b_male", 0, 1) * male
        logits += pm.Normal("b_vote", 0, 1) * past_vote[state]
        for name, (index, _) in groups.items():
            logits += (pm.HalfNormal(f"sigma_{name}", 1) * pm.Normal(f"z_{name}", 0, 1, dims=name))[index]
        pm.Bernoulli("y", logit_p=logits, observed=y)
    return model


MODELS = (
    baseball_pooled, baseball_partial, baseball_logit, rat_tumours, radon, radon_noncentered, radon_lkj, sleepstudy,
    rugby, item_response, spatial_counts, funnel, poll,
)  # fmt: skip
CASES = named_alike({model.__name__: model for model in MODELS})
