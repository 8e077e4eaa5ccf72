"""Models of textbooks that the default was not developed on: measurement error, factors, spells, counts in categories,
ordered answers by group, cafes, a level that walks, sites that are not always occupied, contests, islands."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax.scipy.special import expit, logsumexp
from numpyro.distributions import transforms

from benchmarks.models.case import Case, Data


def divorces() -> Data:
    """Fifty states: rates of marriage and divorce, each with a standard error, and the median age."""
    rng = np.random.default_rng(61)
    age = rng.normal(size=50)
    marriage = -0.7 * age + 0.6 * rng.normal(size=50)
    divorce = -0.6 * age + 0.6 * rng.normal(size=50)
    sd_marriage, sd_divorce = rng.uniform(0.1, 0.6, 50), rng.uniform(0.2, 1.0, 50)
    seen = {
        "divorce": divorce + sd_divorce * rng.normal(size=50),
        "marriage": marriage + sd_marriage * rng.normal(size=50),
    }
    return Data(None, {"age": age, "sd_divorce": sd_divorce, "sd_marriage": sd_marriage, **seen})


def measurement_error(age, sd_divorce, sd_marriage, divorce=None, marriage=None):
    a = numpyro.sample("a", dist.Normal(0, 0.2))
    b_age = numpyro.sample("b_age", dist.Normal(0, 0.5))
    b_marriage = numpyro.sample("b_marriage", dist.Normal(0, 0.5))
    a_marriage = numpyro.sample("a_marriage", dist.Normal(0, 0.2))
    b_age_marriage = numpyro.sample("b_age_marriage", dist.Normal(0, 0.5))
    sigma = numpyro.sample("sigma", dist.Exponential(1))
    sigma_marriage = numpyro.sample("sigma_marriage", dist.Exponential(1))
    with numpyro.plate("states", age.shape[0]):
        marriage_true = numpyro.sample("marriage_true", dist.Normal(a_marriage + b_age_marriage * age, sigma_marriage))
        divorce_true = numpyro.sample("divorce_true", dist.Normal(a + b_age * age + b_marriage * marriage_true, sigma))
        numpyro.sample("marriage", dist.Normal(marriage_true, sd_marriage), obs=marriage)
        numpyro.sample("divorce", dist.Normal(divorce_true, sd_divorce), obs=divorce)


def tests_of_pupils() -> Data:
    """Six tests of 150 pupils, with one ability behind them."""
    rng = np.random.default_rng(62)
    loadings, noise = np.array([1.0, 0.8, 1.2, 0.5, 0.9, 0.7]), np.array([0.6, 0.8, 0.5, 1.0, 0.7, 0.9])
    scores = 0.3 * np.arange(6) + rng.normal(size=(150, 1)) * loadings + noise * rng.normal(size=(150, 6))
    return Data({"scores": scores})


def factor_analysis(scores):
    """Confirmatory, with one factor whose scores are latents; all loadings positive."""
    people, items = scores.shape
    intercept = numpyro.sample("intercept", dist.Normal(0, 5).expand([items]).to_event(1))
    loading = numpyro.sample("loading", dist.HalfNormal(2).expand([items]).to_event(1))
    noise = numpyro.sample("noise", dist.HalfCauchy(1).expand([items]).to_event(1))
    with numpyro.plate("people", people):
        ability = numpyro.sample("ability", dist.Normal(0, 1))
        loc = intercept + ability[:, None] * loading
        numpyro.sample("scores", dist.Normal(loc, noise).to_event(1), obs=scores)


def adoptions() -> Data:
    """Days until 300 cats are adopted, from eight shelters; a third are still waiting when the study ends."""
    rng = np.random.default_rng(63)
    shelter, black = rng.integers(0, 8, 300), rng.binomial(1, 0.3, 300)
    scale = np.exp(3.5 + 0.3 * rng.normal(size=8)[shelter] + 0.4 * black)
    days, last = scale * rng.weibull(1.4, 300), rng.uniform(10, 80, 300)
    rows = {"shelter": shelter, "black": black.astype(float), "days": np.minimum(days, last), "waiting": days > last}
    return Data(rows, {"shelters": 8})


def censored_adoptions(shelter, black, days, waiting, shelters):
    a = numpyro.sample("a", dist.Normal(4, 1))
    b = numpyro.sample("b", dist.Normal(0, 1))
    shape = numpyro.sample("shape", dist.LogNormal(0, 0.5))
    tau = numpyro.sample("tau", dist.Exponential(1))
    with numpyro.plate("shelters", shelters):
        effect = numpyro.sample("effect", dist.Normal(0, tau))
    scale = jnp.exp(a + b * black + effect[shelter])
    log_survival = -((days / scale) ** shape)
    log_hazard = jnp.log(shape / scale) + (shape - 1) * jnp.log(days / scale)
    with numpyro.plate("cats", days.shape[0]):
        numpyro.factor("spell", jnp.where(waiting, log_survival, log_hazard + log_survival))


def pollen() -> Data:
    """Counts of seven species in 40 layers of a core, more spread out than a multinomial's."""
    rng = np.random.default_rng(64)
    shares = rng.dirichlet(12.0 * np.array([0.3, 0.25, 0.2, 0.1, 0.08, 0.05, 0.02]), 40)
    total = rng.integers(60, 200, 40)
    return Data({"counts": np.stack([rng.multinomial(n, p) for n, p in zip(total, shares, strict=True)])})


def dirichlet_multinomial(counts):
    share = numpyro.sample("share", dist.Dirichlet(jnp.ones(counts.shape[-1])))
    concentration = numpyro.sample("concentration", dist.LogNormal(2, 1))
    with numpyro.plate("layers", counts.shape[0]):
        total = counts.sum(-1)
        numpyro.sample("counts", dist.DirichletMultinomial(concentration * share, total), obs=counts)


def stories() -> Data:
    """Answers from 0 to 6 of 60 people to ten stories each, of two kinds."""
    rng = np.random.default_rng(65)
    person, story = (grid.ravel() for grid in np.indices((60, 10)))
    action, intention = story % 2, (story // 2) % 2
    phi = -0.6 * action - 0.5 * intention + 0.9 * rng.normal(size=60)[person] + 0.3 * rng.normal(size=10)[story]
    cut = np.array([-1.9, -1.2, -0.7, 0.2, 0.9, 1.8])
    answer = (phi[:, None] + rng.logistic(size=(600, 1)) > cut).sum(1)
    rows = {"person": person, "story": story, "action": action.astype(float), "intention": intention.astype(float)}
    return Data({**rows, "answer": answer}, {"people": 60, "stories": 10})


def ordinal_partial_pooling(person, story, action, intention, answer, people, stories):
    cutpoints = numpyro.sample(
        "cutpoints", dist.TransformedDistribution(dist.Normal(0, 1.5).expand([6]), transforms.OrderedTransform())
    )
    b_action = numpyro.sample("b_action", dist.Normal(0, 0.5))
    b_intention = numpyro.sample("b_intention", dist.Normal(0, 0.5))
    sigma_person = numpyro.sample("sigma_person", dist.Exponential(1))
    sigma_story = numpyro.sample("sigma_story", dist.Exponential(1))
    with numpyro.plate("people", people):
        of_person = numpyro.sample("of_person", dist.Normal(0, sigma_person))
    with numpyro.plate("stories", stories):
        of_story = numpyro.sample("of_story", dist.Normal(0, sigma_story))
    phi = b_action * action + b_intention * intention + of_person[person] + of_story[story]
    with numpyro.plate("answers", answer.shape[0]):
        numpyro.sample("answer", dist.OrderedLogistic(phi, cutpoints), obs=answer)


def coffee() -> Data:
    """Waiting times in 20 cafes, ten visits each, in the morning and in the afternoon."""
    rng = np.random.default_rng(66)
    cafe, afternoon = np.repeat(np.arange(20), 10), np.tile([0.0, 1.0], 100)
    covariance = np.array([[1.0, -0.35], [-0.35, 0.25]])
    level, slope = rng.multivariate_normal([3.5, -1.0], covariance, 20).T
    wait = level[cafe] + slope[cafe] * afternoon + 0.5 * rng.normal(size=200)
    return Data({"cafe": cafe, "afternoon": afternoon, "wait": wait}, {"cafes": 20})


def cafes_lkj(cafe, afternoon, wait, cafes):
    """Varying intercepts and slopes, centred, with their correlation matrix as a latent."""
    a = numpyro.sample("a", dist.Normal(5, 2))
    b = numpyro.sample("b", dist.Normal(-1, 0.5))
    sigma_cafe = numpyro.sample("sigma_cafe", dist.Exponential(1).expand([2]))
    sigma = numpyro.sample("sigma", dist.Exponential(1))
    rho = numpyro.sample("rho", dist.LKJ(2, 2))
    cov = jnp.outer(sigma_cafe, sigma_cafe) * rho
    effects = numpyro.sample("effects", dist.MultivariateNormal(jnp.stack([a, b]), cov).expand([cafes]))
    mu = effects[cafe, 0] + effects[cafe, 1] * afternoon
    numpyro.sample("wait", dist.Normal(mu, sigma), obs=wait)


def fatalities() -> Data:
    """Counts of 60 months around a level that walks."""
    rng = np.random.default_rng(67)
    level = 1.5 + np.cumsum(0.15 * rng.normal(size=60))
    return Data(None, {"counts": rng.poisson(np.exp(level))})


def local_level_counts(counts):
    start = numpyro.sample("start", dist.Normal(1, 1))
    sigma = numpyro.sample("sigma", dist.HalfNormal(0.5))
    walk = numpyro.sample("walk", dist.GaussianRandomWalk(scale=sigma, num_steps=counts.shape[0]))
    numpyro.sample("counts", dist.Poisson(jnp.exp(start + walk)), obs=counts)


def visits() -> Data:
    """Whether a bird was seen at 120 sites on five days each; not every site has any."""
    rng = np.random.default_rng(68)
    forest, wind = rng.normal(size=120), rng.normal(size=(120, 5))
    there = rng.binomial(1, expit(0.3 + 1.1 * forest))
    return Data({"forest": forest, "wind": wind, "seen": there[:, None] * rng.binomial(1, expit(-0.4 - 0.6 * wind))})


def occupancy(forest, wind, seen):
    """Whether a site is occupied is summed out by hand."""
    alpha = numpyro.sample("alpha", dist.Normal(0, 1.5).expand([2]).to_event(1))
    beta = numpyro.sample("beta", dist.Normal(0, 1.5).expand([2]).to_event(1))
    logit_psi = alpha[0] + alpha[1] * forest
    log_seen = dist.Bernoulli(logits=beta[0] + beta[1] * wind).log_prob(seen).sum(-1)
    with numpyro.plate("sites", forest.shape[0]):
        occupied = -jnp.logaddexp(0.0, -logit_psi) + log_seen
        empty = jnp.where(seen.sum(-1) == 0, -jnp.logaddexp(0.0, logit_psi), -jnp.inf)
        numpyro.factor("history", logsumexp(jnp.stack([occupied, empty]), axis=0))


def contests() -> Data:
    """400 matches among 24 players."""
    rng = np.random.default_rng(69)
    strength = 0.8 * rng.normal(size=24)
    first, second = np.array([rng.choice(24, 2, replace=False) for _ in range(400)]).T
    won = rng.binomial(1, expit(strength[first] - strength[second]))
    return Data({"first": first, "second": second, "won": won}, {"players": 24})


def bradley_terry(first, second, won, players):
    sigma = numpyro.sample("sigma", dist.HalfNormal(1))
    strength = numpyro.sample("strength", dist.ZeroSumNormal(sigma, (players,)))
    numpyro.sample("won", dist.Bernoulli(logits=strength[first] - strength[second]), obs=won)


def societies() -> Data:
    """Tools of ten islands, by population; islands near each other learn from each other."""
    rng = np.random.default_rng(70)
    place = rng.uniform(0, 6, size=(10, 2))
    distance = np.sqrt(((place[:, None] - place) ** 2).sum(-1))
    population = np.exp(rng.normal(9, 1.5, 10))
    effect = rng.multivariate_normal(np.zeros(10), 0.15 * np.exp(-0.3 * distance**2) + 1e-6 * np.eye(10))
    return Data(
        None,
        {"distance": distance, "population": population, "tools": rng.poisson(np.exp(effect) * 2 * population**0.3)},
    )


def island_process(distance, population, tools):
    """Poisson rates from a theory, times the exponential of a Gaussian process over distances, not centred."""
    a, b, g = (numpyro.sample(name, dist.Exponential(1)) for name in ("a", "b", "g"))
    etasq = numpyro.sample("etasq", dist.Exponential(2))
    rhosq = numpyro.sample("rhosq", dist.Exponential(0.5))
    z = numpyro.sample("z", dist.Normal(0, 1).expand([tools.shape[0]]))
    cov = etasq * (jnp.exp(-rhosq * distance**2) + 0.01 * jnp.eye(tools.shape[0]))
    k = numpyro.deterministic("k", jnp.linalg.cholesky(cov) @ z)
    numpyro.sample("tools", dist.Poisson(a * population**b / g * jnp.exp(k)), obs=tools)


CASES = (
    Case("measurement_error", measurement_error, divorces, "latents behind every number", {"samples": 1500}),
    Case("factor_analysis", factor_analysis, tests_of_pupils, "a latent per row", {"samples": 1500}),
    Case("censored_adoptions", censored_adoptions, adoptions, "censoring by a factor, few groups", {"target": 0.95}),
    Case("dirichlet_multinomial", dirichlet_multinomial, pollen, "a simplex, counts with a total each"),
    Case("ordinal_partial_pooling", ordinal_partial_pooling, stories, "ordered latents and groups", {"samples": 1500}),
    Case(
        "cafes_lkj", cafes_lkj, coffee, "a correlation matrix as a latent, centred", {"target": 0.95, "samples": 1500}
    ),
    Case("local_level_counts", local_level_counts, fatalities, "a random walk", {"target": 0.95, "samples": 2500}),
    Case("occupancy", occupancy, visits, "a factor per site, minus infinity in it"),
    Case("bradley_terry", bradley_terry, contests, "latents that sum to zero", {"samples": 1500}),
    Case("island_process", island_process, societies, "a small Gaussian process", {"target": 0.95, "samples": 2500}),
)
