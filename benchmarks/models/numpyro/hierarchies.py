"""Groups that learn from each other: proportions, admissions, radon, sleep, funnels."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.infer.reparam import LocScaleReparam

from benchmarks.models.case import Case, Data
from benchmarks.models.known import ADMISSIONS, BASEBALL_HITS, RAT_TUMOURS, RATS, SLEEP


def baseball() -> Data:
    hits = np.array(BASEBALL_HITS)
    return Data({"at_bats": np.full(len(hits), 45), "hits": hits})


def fully_pooled(at_bats, hits=None):
    phi = numpyro.sample("phi", dist.Uniform(0, 1))
    numpyro.sample("obs", dist.Binomial(at_bats, probs=phi), obs=hits)


def partially_pooled(at_bats, hits=None):
    m = numpyro.sample("m", dist.Uniform(0, 1))
    kappa = numpyro.sample("kappa", dist.Pareto(1, 1.5))
    num_players = at_bats.shape[0]
    with numpyro.plate("num_players", num_players):
        phi = numpyro.sample("phi", dist.Beta(m * kappa, (1 - m) * kappa))
        numpyro.sample("obs", dist.Binomial(at_bats, probs=phi), obs=hits)


def partially_pooled_with_logit(at_bats, hits=None):
    loc = numpyro.sample("loc", dist.Normal(-1, 1))
    scale = numpyro.sample("scale", dist.HalfCauchy(1))
    num_players = at_bats.shape[0]
    with numpyro.plate("num_players", num_players), numpyro.handlers.reparam(config={"alpha": LocScaleReparam(0)}):
        alpha = numpyro.sample("alpha", dist.Normal(loc, scale))
        numpyro.sample("obs", dist.Binomial(at_bats, logits=alpha), obs=hits)


def admissions() -> Data:
    table = np.array(ADMISSIONS)
    rows = dict(zip(("dept", "male", "applications", "admit"), table.T, strict=True))
    return Data(rows)


def ucbadmit(dept, male, applications, admit=None):
    v_mu = numpyro.sample("v_mu", dist.Normal(0, jnp.array([4.0, 1.0])))
    sigma = numpyro.sample("sigma", dist.HalfNormal(jnp.ones(2)))
    L_Rho = numpyro.sample("L_Rho", dist.LKJCholesky(2, concentration=2))
    scale_tril = sigma[..., jnp.newaxis] * L_Rho
    with numpyro.plate("dept", 6):
        z = numpyro.sample("z", dist.Normal(0, 1).expand([2]).to_event(1))
    v = jnp.dot(scale_tril, z.T).T
    logits = v_mu[0] + v[dept, 0] + (v_mu[1] + v[dept, 1]) * male
    numpyro.sample("admit", dist.Binomial(applications, logits=logits), obs=admit)


def tumours() -> Data:
    return Data({"y": np.array(RAT_TUMOURS), "n": np.array(RATS)})


def rats_tumours(n, y=None):
    """Group rates given by Beta(a, b), with the improper prior (a + b)^(-5/2)."""
    a = numpyro.sample("a", dist.ImproperUniform(dist.constraints.positive, (), ()))
    b = numpyro.sample("b", dist.ImproperUniform(dist.constraints.positive, (), ()))
    numpyro.factor("prior", -2.5 * jnp.log(a + b))
    with numpyro.plate("groups", n.shape[0]):
        theta = numpyro.sample("theta", dist.Beta(a, b))
        numpyro.sample("y", dist.Binomial(n, probs=theta), obs=y)


def radon_data() -> Data:
    """919 houses in 85 counties, a few of which have most of the houses."""
    rng = np.random.default_rng(11)
    sizes = np.maximum(1, np.round(rng.lognormal(1.6, 1.0, 85))).astype(int)
    county = np.concatenate([np.arange(85), rng.choice(85, 919 - 85, p=sizes / sizes.sum())])
    uranium = rng.normal(0, 0.4, 85)
    floor = rng.binomial(1, 0.17, 919)
    level = 1.5 + 0.7 * uranium + 0.3 * rng.normal(size=85)
    slope = -0.65 - 0.4 * uranium + 0.35 * rng.normal(size=85)
    log_radon = level[county] + slope[county] * floor + 0.75 * rng.normal(size=919)
    rows = {"county": county, "floor": floor.astype(float), "log_radon": log_radon}
    return Data(rows, {"num_counties": 85})


def radon(county, floor, log_radon=None, num_counties=None):
    mu_a = numpyro.sample("mu_a", dist.Normal(0.0, 1.0))
    sigma_a = numpyro.sample("sigma_a", dist.HalfCauchy(1.0))
    mu_b = numpyro.sample("mu_b", dist.Normal(0.0, 1.0))
    sigma_b = numpyro.sample("sigma_b", dist.HalfCauchy(1.0))
    with numpyro.plate("counties", num_counties):
        a = numpyro.sample("a", dist.Normal(mu_a, sigma_a))
        b = numpyro.sample("b", dist.Normal(mu_b, sigma_b))
    eps = numpyro.sample("eps", dist.HalfCauchy(1.0))
    numpyro.sample("obs", dist.Normal(a[county] + b[county] * floor, eps), obs=log_radon)


def radon_noncentered(county, floor, log_radon=None, num_counties=None):
    config = {"a": LocScaleReparam(0), "b": LocScaleReparam(0)}
    with numpyro.handlers.reparam(config=config):
        radon(county, floor, log_radon, num_counties)


def radon_lkj(county, floor, log_radon=None, num_counties=None):
    mu = numpyro.sample("mu", dist.Normal(0.0, 5.0).expand([2]).to_event(1))
    sd = numpyro.sample("sd", dist.HalfNormal(1.0).expand([2]).to_event(1))
    chol_corr = numpyro.sample("chol_corr", dist.LKJCholesky(2, 2.0))
    with numpyro.plate("counties", num_counties):
        z = numpyro.sample("z", dist.Normal(0, 1).expand([2]).to_event(1))
    effects = numpyro.deterministic("effects", mu + z @ (sd[:, None] * chol_corr).T)
    sigma = numpyro.sample("sigma", dist.Exponential(1.0))
    with numpyro.plate("houses", county.shape[0]):
        loc = effects[county, 0] + effects[county, 1] * floor
        numpyro.sample("obs", dist.Normal(loc, sigma), obs=log_radon)


def sleep() -> Data:
    reaction = np.array(SLEEP)
    subject, days = np.indices(reaction.shape)
    rows = {"days": days.ravel().astype(float), "subject": subject.ravel(), "reaction": reaction.ravel()}
    return Data(rows, {"num_subjects": len(reaction)})


def sleepstudy(days, subject, reaction=None, num_subjects=None):
    """As a formula package writes `Reaction ~ Days + (Days | Subject)`: centred predictor, priors of the data's scale,
    independent effects, not centred."""
    intercept = numpyro.sample("Intercept", dist.Normal(298.5, 261.7))
    slope = numpyro.sample("Days", dist.Normal(0, 48.9))
    intercept_sigma = numpyro.sample("1|Subject_sigma", dist.HalfNormal(261.7))
    slope_sigma = numpyro.sample("Days|Subject_sigma", dist.HalfNormal(48.9))
    with numpyro.plate("subjects", num_subjects):
        intercept_offset = numpyro.sample("1|Subject_offset", dist.Normal(0, 1))
        slope_offset = numpyro.sample("Days|Subject_offset", dist.Normal(0, 1))
    by_subject = numpyro.deterministic("1|Subject", intercept_sigma * intercept_offset)
    days_by_subject = numpyro.deterministic("Days|Subject", slope_sigma * slope_offset)
    sigma = numpyro.sample("sigma", HalfStudentT(4, 56.2))
    mu = intercept + slope * (days - 4.5) + by_subject[subject] + days_by_subject[subject] * days
    numpyro.sample("Reaction", dist.Normal(mu, sigma), obs=reaction)


def HalfStudentT(df, scale):
    """Scales of formula packages: a Student-t folded at zero."""
    return dist.FoldedDistribution(dist.StudentT(df, 0.0, scale))


def sleepstudy_correlated(days, subject, reaction=None, num_subjects=None):
    """The same with correlated effects and raw scales, centred: `brms` without its defaults' centring."""
    b = numpyro.sample("b", dist.Normal(jnp.array([250.0, 10.0]), jnp.array([100.0, 20.0])).to_event(1))
    sd = numpyro.sample("sd", HalfStudentT(3, jnp.array([60.0, 60.0])).to_event(1))
    L = numpyro.sample("L", dist.LKJCholesky(2, 1.0))
    with numpyro.plate("subjects", num_subjects):
        r = numpyro.sample("r", dist.MultivariateNormal(b, scale_tril=sd[:, None] * L))
    sigma = numpyro.sample("sigma", HalfStudentT(3, 60.0))
    with numpyro.plate("obs", days.shape[0]):
        numpyro.sample("Reaction", dist.Normal(r[subject, 0] + r[subject, 1] * days, sigma), obs=reaction)


def funnel(dim=10):
    y = numpyro.sample("y", dist.Normal(0, 3))
    numpyro.sample("x", dist.Normal(jnp.zeros(dim - 1), jnp.exp(y / 2)))


def funnel_reparameterised(dim=10):
    with numpyro.handlers.reparam(config={"x": LocScaleReparam(0)}):
        funnel(dim)


def poll_data() -> Data:
    """A poll of 2,000 people in 51 states, with age, education and ethnicity."""
    rng = np.random.default_rng(12)
    size = 2000
    state = rng.choice(51, size, p=rng.dirichlet(np.full(51, 1.5)))
    rows = {"state": state, "age": rng.integers(0, 6, size), "education": rng.integers(0, 5, size)}
    rows |= {"ethnicity": rng.choice(4, size, p=[0.7, 0.12, 0.12, 0.06]), "male": rng.choice([-0.5, 0.5], size)}
    vote = rng.normal(size=51) * 0.5
    levels = [rng.normal(size=k) * s for k, s in ((51, 0.3), (6, 0.3), (5, 0.2), (4, 0.6))]
    logits = 0.2 + 0.6 * vote[state] + 0.3 * rows["male"]
    for effect, name in zip(levels, ("state", "age", "education", "ethnicity"), strict=True):
        logits = logits + effect[rows[name]]
    rows["y"] = rng.binomial(1, 1 / (1 + np.exp(-logits)))
    return Data(rows, {"past_vote": vote})


def poll(state, age, education, ethnicity, male, y=None, past_vote=None):
    """Multilevel regression for post-stratification: crossed effects, each with a scale of its own."""
    intercept = numpyro.sample("intercept", dist.Normal(0, 1))
    b_male = numpyro.sample("b_male", dist.Normal(0, 1))
    b_vote = numpyro.sample("b_vote", dist.Normal(0, 1))
    logits = intercept + b_male * male + b_vote * past_vote[state]
    groups = {"state": (state, 51), "age": (age, 6), "education": (education, 5), "ethnicity": (ethnicity, 4)}
    for name, (index, size) in groups.items():
        scale = numpyro.sample(f"sigma_{name}", dist.HalfNormal(1))
        with numpyro.plate(f"{name}s", size):
            z = numpyro.sample(f"z_{name}", dist.Normal(0, 1))
        logits = logits + scale * z[index]
    numpyro.sample("y", dist.Bernoulli(logits=logits), obs=y)


def neighbours() -> Data:
    """Counts in 60 areas of a 6 by 10 grid, with neighbours by shared sides."""
    rng = np.random.default_rng(13)
    rows, columns = np.divmod(np.arange(60), 10)
    adjacency = (np.abs(rows[:, None] - rows) + np.abs(columns[:, None] - columns) == 1).astype(float)
    precision = np.diag(adjacency.sum(1)) - 0.97 * adjacency
    effect = 0.7 * np.linalg.solve(np.linalg.cholesky(precision).T, rng.normal(size=60))
    expected = rng.uniform(5, 20, 60)
    x = rng.normal(size=60)
    y = rng.poisson(expected * np.exp(0.1 + 0.3 * x + effect))
    return Data(None, {"adjacency": adjacency, "expected": expected, "x": x, "y": y})


def spatial_counts(adjacency, expected, x, y=None):
    alpha = numpyro.sample("alpha", dist.Normal(0, 2))
    beta = numpyro.sample("beta", dist.Normal(0, 1))
    tau = numpyro.sample("tau", dist.Gamma(2, 2))
    rho = numpyro.sample("rho", dist.Uniform(0, 1))
    phi = numpyro.sample(
        "phi", dist.CAR(jnp.zeros(60), correlation=rho, conditional_precision=tau, adj_matrix=adjacency)
    )
    numpyro.sample("y", dist.Poisson(expected * jnp.exp(alpha + beta * x + phi)), obs=y)


def spatial_counts_icar(adjacency, expected, x, y=None):
    """The intrinsic form: a singular precision by pairwise differences, and a soft sum to zero."""
    alpha = numpyro.sample("alpha", dist.Normal(0, 2))
    beta = numpyro.sample("beta", dist.Normal(0, 1))
    sigma = numpyro.sample("sigma", dist.HalfNormal(1))
    phi = numpyro.sample("phi", dist.ImproperUniform(dist.constraints.real_vector, (), (60,)))
    first, second = jnp.nonzero(jnp.triu(adjacency), size=104)
    numpyro.factor("pairwise", -0.5 * jnp.sum((phi[first] - phi[second]) ** 2))
    numpyro.factor("sum_to_zero", dist.Normal(0, 0.06).log_prob(jnp.sum(phi)))
    numpyro.sample("y", dist.Poisson(expected * jnp.exp(alpha + beta * x + sigma * phi)), obs=y)


def matches() -> Data:
    """Six teams, home and away, two seasons."""
    rng = np.random.default_rng(14)
    home, away = np.array([(h, a) for h in range(6) for a in range(6) if h != a] * 2).T
    attack, defence = (effects - effects.mean() for effects in 0.25 * rng.normal(size=(2, 6)))
    home_points = rng.poisson(np.exp(3.0 + 0.2 + attack[home] + defence[away]))
    away_points = rng.poisson(np.exp(3.0 + attack[away] + defence[home]))
    return Data({"home": home, "away": away, "home_points": home_points, "away_points": away_points})


def rugby(home, away, home_points=None, away_points=None, num_teams=6):
    home_advantage = numpyro.sample("home_advantage", dist.Normal(0, 1))
    intercept = numpyro.sample("intercept", dist.Normal(3, 1))
    sd_att = numpyro.sample("sd_att", dist.HalfNormal(2))
    sd_def = numpyro.sample("sd_def", dist.HalfNormal(2))
    with numpyro.plate("teams", num_teams):
        atts_star = numpyro.sample("atts_star", dist.Normal(0, sd_att))
        defs_star = numpyro.sample("defs_star", dist.Normal(0, sd_def))
    atts = numpyro.deterministic("atts", atts_star - jnp.mean(atts_star))
    defs = numpyro.deterministic("defs", defs_star - jnp.mean(defs_star))
    home_theta = jnp.exp(intercept + home_advantage + atts[home] + defs[away])
    away_theta = jnp.exp(intercept + atts[away] + defs[home])
    with numpyro.plate("games", home.shape[0]):
        numpyro.sample("home_points", dist.Poisson(home_theta), obs=home_points)
        numpyro.sample("away_points", dist.Poisson(away_theta), obs=away_points)


def answers() -> Data:
    """100 students, 20 items, every answer a row."""
    rng = np.random.default_rng(15)
    ability, difficulty, slope = rng.normal(size=100), rng.normal(size=20), rng.lognormal(0, 0.3, 20)
    student, item = (grid.ravel() for grid in np.indices((100, 20)))
    logits = slope[item] * (ability[student] - difficulty[item])
    correct = rng.binomial(1, 1 / (1 + np.exp(-logits)))
    return Data({"student": student, "item": item, "correct": correct}, {"num_students": 100, "num_items": 20})


def item_response(student, item, correct=None, num_students=None, num_items=None):
    sigma_b = numpyro.sample("sigma_b", dist.HalfCauchy(2))
    mu_b = numpyro.sample("mu_b", dist.Normal(0, 2))
    sigma_a = numpyro.sample("sigma_a", dist.HalfCauchy(2))
    with numpyro.plate("students", num_students):
        theta = numpyro.sample("theta", dist.Normal(0, 1))
    with numpyro.plate("items", num_items):
        b = numpyro.sample("b", dist.Normal(mu_b, sigma_b))
        a = numpyro.sample("a", dist.LogNormal(0, sigma_a))
    with numpyro.plate("answers", student.shape[0]):
        logits = a[item] * (theta[student] - b[item])
        numpyro.sample("correct", dist.Bernoulli(logits=logits), obs=correct)


FUNNEL = {"y": (0.0, 3.0), "x": (np.zeros(9), np.full(9, np.exp(9 / 4)))}
"""The sd of x is the root of the mean of exp(y)."""

CASES = (
    Case("baseball_pooled", fully_pooled, baseball, "one latent, nearly Gaussian: no false alarm"),
    Case(
        "baseball_partial", partially_pooled, baseball, "bounded latents, hierarchy", {"target": 0.95, "samples": 4000}
    ),
    Case("baseball_logit", partially_pooled_with_logit, baseball, "hierarchy", {"target": 0.95, "samples": 2500}),
    Case("ucbadmit", ucbadmit, admissions, "few data, correlation of effects", {"target": 0.95, "samples": 2500}),
    Case("rat_tumours", rats_tumours, tumours, "flat prior", {"target": 0.95, "samples": 2500}),
    Case("radon", radon, radon_data, "hierarchy above 100 latents", {"samples": 2000}, easier=radon_noncentered),
    Case("radon_noncentered", radon_noncentered, radon_data, "hierarchy above 100 latents", {"samples": 1500}),
    Case("radon_lkj", radon_lkj, radon_data, "hierarchy above 100 latents", {"samples": 1500}),
    Case("sleepstudy", sleepstudy, sleep, "scales of 250, correlation", {"samples": 2500}),
    Case(
        "sleepstudy_correlated",
        sleepstudy_correlated,
        sleep,
        "scales of 250, correlation",
        {"target": 0.95, "samples": 2500},
    ),
    Case("funnel", funnel, lambda: Data(None, {"dim": 10}), "honesty", exact=FUNNEL),
    Case(
        "funnel_reparameterised", funnel_reparameterised, lambda: Data(None, {"dim": 10}), "honesty", {"samples": 2500}
    ),
    Case("poll", poll, poll_data, "many scales", {"target": 0.95, "samples": 1500}),
    Case("spatial_counts", spatial_counts, neighbours, "dense precision", {"target": 0.95, "samples": 1500}),
    Case("spatial_counts_icar", spatial_counts_icar, neighbours, "singular precision", {"samples": 1500}),
    Case("rugby", rugby, matches, "invariance", {"samples": 1500}),
    Case("item_response", item_response, answers, "invariance, many latents", {"samples": 4000, "target": 0.95}),
)
