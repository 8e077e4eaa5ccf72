"""Hidden classes and states: mixtures, hidden Markov models, annotators, animals, change points, topics."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax.scipy.special import logsumexp
from numpyro import handlers
from numpyro.contrib.control_flow import scan
from numpyro.infer import init_to_value

from benchmarks.models.case import Case, Data
from benchmarks.models.known import COAL_DISASTERS


def clusters() -> Data:
    rng = np.random.default_rng(51)
    component = rng.choice(3, 300, p=[0.3, 0.5, 0.2])
    return Data(
        {"x": np.array([-4.0, 0.0, 5.0])[component] + np.array([1.0, 0.8, 1.2])[component] * rng.normal(size=300)}
    )


def mixture(x=None, K=3):
    """Marginalised by the distribution; means ordered, so that labels do not switch."""
    w = numpyro.sample("w", dist.Dirichlet(jnp.ones(K)))
    ordered = dist.TransformedDistribution(
        dist.Normal(0, 5).expand([K]).to_event(1), dist.transforms.OrderedTransform()
    )
    mu = numpyro.sample("mu", ordered)
    with numpyro.plate("components", K):
        sigma = numpyro.sample("sigma", dist.HalfNormal(2))
    with numpyro.plate("data", x.shape[0]):
        numpyro.sample("x", dist.MixtureSameFamily(dist.Categorical(w), dist.Normal(mu, sigma)), obs=x)


def mixture_unordered(x=None, K=3):
    """The same without an order: six modes, of which a fit can have one."""
    w = numpyro.sample("w", dist.Dirichlet(jnp.ones(K)))
    with numpyro.plate("components", K):
        mu = numpyro.sample("mu", dist.Normal(0, 5))
        sigma = numpyro.sample("sigma", dist.HalfNormal(2))
    with numpyro.plate("data", x.shape[0]):
        numpyro.sample("x", dist.MixtureSameFamily(dist.Categorical(w), dist.Normal(mu, sigma)), obs=x)


def mixture_discrete(x=None, K=3):
    """With a class per row, which is to be enumerated."""
    w = numpyro.sample("w", dist.Dirichlet(jnp.ones(K)))
    ordered = dist.TransformedDistribution(
        dist.Normal(0, 5).expand([K]).to_event(1), dist.transforms.OrderedTransform()
    )
    mu = numpyro.sample("mu", ordered)
    with numpyro.plate("components", K):
        sigma = numpyro.sample("sigma", dist.HalfNormal(2))
    with numpyro.plate("data", x.shape[0]):
        z = numpyro.sample("z", dist.Categorical(w), infer={"enumerate": "parallel"})
        numpyro.sample("x", dist.Normal(mu[z], sigma[z]), obs=x)


def plane_clusters() -> Data:
    rng = np.random.default_rng(52)
    component = rng.choice(2, 300, p=[0.35, 0.65])
    x = np.array([[-2.0, 0.0], [2.0, 1.0]])[component] + rng.multivariate_normal([0, 0], [[1, 0.4], [0.4, 0.7]], 300)
    return Data({"x": x})


def mixture_plane(x=None):
    """Two components in the plane with a full covariance each; initial values say which is which."""
    w = numpyro.sample("w", dist.Beta(2, 2))
    with numpyro.plate("components", 2):
        mu = numpyro.sample("mu", dist.Normal(jnp.zeros(2), 5.0).to_event(1))
        scale = numpyro.sample("scale", dist.LogNormal(jnp.zeros(2), 1.0).to_event(1))
        corr = numpyro.sample("corr", dist.LKJCholesky(2, 2.0))
    tril = scale[..., None] * corr
    log_weights = jnp.log(jnp.stack([w, 1 - w]))
    log_densities = dist.MultivariateNormal(mu, scale_tril=tril).log_prob(x[:, None, :])
    numpyro.factor("likelihood", logsumexp(log_weights + log_densities, axis=1))


PLANE_INIT = {"mu": np.array([[-2.0, 0.0], [2.0, 1.0]])}
LINE_INIT = {"mu": np.array([-4.0, 0.0, 5.0])}
"""Where NUTS starts: it finds the components, but from a uniform start not all chains do."""


def markov_chain(size: int, states: int, seed: int) -> tuple[np.ndarray, np.random.Generator]:
    rng = np.random.default_rng(seed)
    transition = np.full((states, states), 0.15 / (states - 1)) + (0.85 - 0.15 / (states - 1)) * np.eye(states)
    path = [0]
    for _ in range(size - 1):
        path.append(rng.choice(states, p=transition[path[-1]]))
    return np.array(path), rng


def words() -> Data:
    """A semi-supervised chain: 100 labelled steps, 500 not; three categories, ten words."""
    path, rng = markov_chain(600, 3, 53)
    emission = rng.dirichlet(np.full(10, 0.5), size=3)
    word = np.array([rng.choice(10, p=emission[state]) for state in path])
    labelled = {"supervised_states": path[:100], "supervised_words": word[:100], "words": word[100:]}
    return Data(None, {"num_categories": 3, "num_words": 10, **labelled})


def forward_log_prob(init_log_prob, words, transition_log_prob, emission_log_prob):
    def step(log_prob, word):
        log_prob = jnp.expand_dims(log_prob, axis=0) + transition_log_prob.T
        return logsumexp(log_prob + emission_log_prob[:, word][:, None], axis=-1), None

    log_prob, _ = jax.lax.scan(step, init_log_prob, words)
    return log_prob


def semi_supervised_hmm(num_categories, num_words, supervised_states, supervised_words, words):
    transition_prior, emission_prior = jnp.ones(num_categories), jnp.repeat(0.1, num_words)
    concentration = jnp.broadcast_to(transition_prior, (num_categories, num_categories))
    transition = numpyro.sample("transition_prob", dist.Dirichlet(concentration))
    concentration = jnp.broadcast_to(emission_prior, (num_categories, num_words))
    emission = numpyro.sample("emission_prob", dist.Dirichlet(concentration))
    numpyro.sample(
        "supervised_states",
        dist.Categorical(transition[supervised_states[:-1]]),
        obs=supervised_states[1:],
    )
    numpyro.sample("supervised_words", dist.Categorical(emission[supervised_states]), obs=supervised_words)
    init_log_prob = jnp.log(emission[:, words[0]])
    log_prob = forward_log_prob(init_log_prob, words[1:], jnp.log(transition), jnp.log(emission))
    numpyro.factor("forward_log_prob", logsumexp(log_prob, axis=0))


def chain_with_gaussians() -> Data:
    path, rng = markov_chain(300, 3, 54)
    return Data(None, {"y": np.array([-2.0, 0.0, 3.0])[path] + 0.7 * rng.normal(size=300)})


def _hmm_priors(K):
    transition = numpyro.sample("transition", dist.Dirichlet(jnp.ones((K, K)) + 2 * jnp.eye(K)).to_event(1))
    ordered = dist.TransformedDistribution(
        dist.Normal(0, 3).expand([K]).to_event(1), dist.transforms.OrderedTransform()
    )
    mu = numpyro.sample("mu", ordered)
    sigma = numpyro.sample("sigma", dist.HalfNormal(1).expand([K]).to_event(1))
    return transition, mu, sigma


def gaussian_hmm(y, K=3):
    """By the forward algorithm."""
    transition, mu, sigma = _hmm_priors(K)
    log_emission = dist.Normal(mu, sigma).log_prob(y[:, None])

    def step(log_prob, emission):
        return logsumexp(log_prob[:, None] + jnp.log(transition), axis=0) + emission, None

    log_prob, _ = jax.lax.scan(step, log_emission[0] - jnp.log(K), log_emission[1:])
    numpyro.factor("forward", logsumexp(log_prob))


def gaussian_hmm_enumerated(y, K=3):
    """With a state per step, which is to be enumerated."""
    transition, mu, sigma = _hmm_priors(K)
    first = numpyro.sample("x_0", dist.Categorical(jnp.ones(K) / K), infer={"enumerate": "parallel"})
    numpyro.sample("y_0", dist.Normal(mu[first], sigma[first]), obs=y[0])

    def step(x, y_t):
        x = numpyro.sample("x", dist.Categorical(transition[x]), infer={"enumerate": "parallel"})
        numpyro.sample("y", dist.Normal(mu[x], sigma[x]), obs=y_t)
        return x, None

    scan(step, first, y[1:])


def drives() -> Data:
    """Distances to the hoop and to a defender, in two regimes."""
    path, rng = markov_chain(500, 2, 55)
    u = np.array([0.5, 1.4])[path] + 0.35 * rng.normal(size=500)
    v = np.array([0.9, 2.2])[path] + 0.5 * rng.normal(size=500)
    return Data(None, {"u": u, "v": v})


def basketball_drive(u, v, K=2):
    theta1 = numpyro.sample("theta1", dist.Dirichlet(jnp.array([4.0, 2.0])))
    theta2 = numpyro.sample("theta2", dist.Dirichlet(jnp.array([2.0, 4.0])))
    positive_ordered = dist.constraints.positive_ordered_vector
    phi = numpyro.sample("phi", dist.ImproperUniform(positive_ordered, (), (2,)))
    lam = numpyro.sample("lambda", dist.ImproperUniform(positive_ordered, (), (2,)))
    numpyro.factor("prior", dist.Normal(jnp.array([0.0, 3.0]), 1).log_prob(phi).sum())
    numpyro.factor("prior2", dist.Normal(jnp.array([0.0, 3.0]), 1).log_prob(lam).sum())
    theta = jnp.stack([theta1, theta2])
    tau, rho = 0.5, 0.35
    log_emission = dist.Normal(phi, rho).log_prob(u[:, None]) + dist.Normal(lam, tau).log_prob(v[:, None])

    def step(gamma, emission):
        return logsumexp(gamma[:, None] + jnp.log(theta), axis=0) + emission, None

    gamma, _ = jax.lax.scan(step, log_emission[0], log_emission[1:])
    numpyro.factor("target", logsumexp(gamma))


def captures() -> Data:
    """200 animals on seven occasions, marked at their first capture."""
    rng = np.random.default_rng(56)
    history = np.zeros((200, 7), int)
    for animal in history:
        first = rng.integers(0, 6)
        alive = animal[first] = 1
        for t in range(first + 1, 7):
            alive = alive * rng.binomial(1, 0.7)
            animal[t] = alive * rng.binomial(1, 0.6)
    return Data(None, {"capture_history": history})


def capture_recapture(capture_history):
    """Cormack-Jolly-Seber with constant probabilities; whether an animal lives is to be enumerated."""
    N = capture_history.shape[0]
    phi = numpyro.sample("phi", dist.Uniform(0.0, 1.0))
    rho = numpyro.sample("rho", dist.Uniform(0.0, 1.0))

    def transition_fn(carry, y):
        first_capture_mask, z = carry
        with numpyro.plate("animals", N, dim=-1), handlers.mask(mask=first_capture_mask):
            mu_z_t = first_capture_mask * phi * z + (1 - first_capture_mask)
            z = numpyro.sample("z", dist.Bernoulli(dist.util.clamp_probs(mu_z_t)), infer={"enumerate": "parallel"})
            mu_y_t = rho * z
            numpyro.sample("y", dist.Bernoulli(dist.util.clamp_probs(mu_y_t)), obs=y)
        first_capture_mask = first_capture_mask | y.astype(bool)
        return (first_capture_mask, z), None

    z = jnp.ones(N, dtype=jnp.int32)
    first_capture_mask = capture_history[:, 0].astype(bool)
    scan(transition_fn, (first_capture_mask, z), jnp.swapaxes(capture_history[:, 1:], 0, 1))


def capture_recapture_summed(capture_history):
    """The same with the chance of never being seen again in closed form."""
    phi = numpyro.sample("phi", dist.Uniform(0.0, 1.0))
    rho = numpyro.sample("rho", dist.Uniform(0.0, 1.0))
    T = capture_history.shape[1]
    chi = [jnp.ones(())]
    for _ in range(T - 1):
        chi.append(1 - phi + phi * (1 - rho) * chi[-1])
    chi = jnp.stack(chi[::-1])
    steps = jnp.arange(T)
    first = jnp.argmax(capture_history, axis=1)
    last = T - 1 - jnp.argmax(capture_history[:, ::-1], axis=1)
    between = (steps > first[:, None]) & (steps <= last[:, None])
    seen = jnp.log(phi) + jnp.where(capture_history == 1, jnp.log(rho), jnp.log1p(-rho))
    numpyro.factor("likelihood", jnp.where(between, seen, 0.0).sum(axis=1) + jnp.log(chi[last]))


def annotations() -> Data:
    """45 items, five annotators, four classes."""
    rng = np.random.default_rng(57)
    truth = rng.choice(4, 45, p=[0.4, 0.3, 0.2, 0.1])
    wrong = np.array([0.1, 0.2, 0.2, 0.3, 0.35])
    given = np.where(rng.random((45, 5)) < wrong, rng.integers(0, 4, (45, 5)), truth[:, None])
    return Data(None, {"annotations": given})


def dawid_skene(annotations, num_classes=4):
    """True classes and confusion matrices of all annotators; classes are to be enumerated."""
    num_items, num_positions = annotations.shape
    with numpyro.plate("position", num_positions, dim=-2), numpyro.plate("class", num_classes):
        beta = numpyro.sample("beta", dist.Dirichlet(jnp.ones(num_classes) + 4 * jnp.eye(num_classes)))
    pi = numpyro.sample("pi", dist.Dirichlet(jnp.ones(num_classes)))
    with numpyro.plate("item", num_items, dim=-2):
        c = numpyro.sample("c", dist.Categorical(pi), infer={"enumerate": "parallel"})
        with numpyro.plate("position", num_positions, dim=-1):
            numpyro.sample("y", dist.Categorical(beta[jnp.arange(num_positions), c, :]), obs=annotations)


def dawid_skene_summed(annotations, num_classes=4):
    num_positions = annotations.shape[1]
    with numpyro.plate("position", num_positions, dim=-2), numpyro.plate("class", num_classes):
        beta = numpyro.sample("beta", dist.Dirichlet(jnp.ones(num_classes) + 4 * jnp.eye(num_classes)))
    pi = numpyro.sample("pi", dist.Dirichlet(jnp.ones(num_classes)))
    said = jnp.log(beta)[jnp.arange(num_positions), :, annotations].sum(axis=1)
    numpyro.factor("likelihood", logsumexp(jnp.log(pi) + said, axis=1))


def disasters() -> Data:
    return Data(None, {"counts": np.array(COAL_DISASTERS)})


def change_point(counts):
    """The year of the change is summed out."""
    early = numpyro.sample("early", dist.Exponential(1.0))
    late = numpyro.sample("late", dist.Exponential(1.0))
    years = jnp.arange(counts.shape[0])
    rate = jnp.where(years < years[:, None], early, late)
    numpyro.factor("counts", logsumexp(dist.Poisson(rate).log_prob(counts).sum(axis=1)) - jnp.log(counts.shape[0]))


def change_point_enumerated(counts):
    early = numpyro.sample("early", dist.Exponential(1.0))
    late = numpyro.sample("late", dist.Exponential(1.0))
    size = counts.shape[0]
    switch = numpyro.sample("switch", dist.Categorical(jnp.ones(size) / size), infer={"enumerate": "parallel"})
    with numpyro.plate("years", size):
        rate = jnp.where(jnp.arange(size) < switch, early, late)
        numpyro.sample("counts", dist.Poisson(rate), obs=counts)


def documents() -> Data:
    """60 documents of 50 words out of 25, three topics."""
    rng = np.random.default_rng(58)
    topics = rng.dirichlet(np.full(25, 0.2), size=3)
    shares = rng.dirichlet(np.full(3, 0.5), size=60)
    counts = np.array([rng.multinomial(50, share @ topics) for share in shares])
    return Data({"counts": counts})


def topic_model(counts, num_topics=3):
    num_documents, num_words = counts.shape
    with numpyro.plate("topics", num_topics):
        phi = numpyro.sample("phi", dist.Dirichlet(jnp.full(num_words, 0.5)))
    with numpyro.plate("documents", num_documents):
        theta = numpyro.sample("theta", dist.Dirichlet(jnp.ones(num_topics)))
        numpyro.sample("counts", dist.Multinomial(total_count=50, probs=theta @ phi), obs=counts)


CASES = (
    Case("mixture", mixture, clusters, "modes", {"samples": 1500, "init": init_to_value(values=LINE_INIT)}),
    Case("mixture_unordered", mixture_unordered, clusters, "modes that are alike", {"samples": 1000}),
    Case(
        "mixture_discrete",
        mixture_discrete,
        clusters,
        "enumeration",
        {"samples": 1500, "init": init_to_value(values=LINE_INIT)},
        enumerated=True,
        easier=mixture,
    ),
    Case(
        "mixture_plane",
        mixture_plane,
        plane_clusters,
        "initial values",
        {"samples": 1500, "init": init_to_value(values=PLANE_INIT)},
    ),
    Case("hmm_semi_supervised", semi_supervised_hmm, words, "many modes, dependent rows", {"samples": 1500}),
    Case("hmm_gaussian", gaussian_hmm, chain_with_gaussians, "label order, dependent rows", {"samples": 1500}),
    Case(
        "hmm_enumerated",
        gaussian_hmm_enumerated,
        chain_with_gaussians,
        "enumeration",
        {"samples": 1500},
        enumerated=True,
        easier=gaussian_hmm,
    ),
    Case("hmm_drive", basketball_drive, drives, "a wrong mode at one start", {"samples": 1500}),
    Case(
        "capture_recapture",
        capture_recapture,
        captures,
        "enumeration",
        {"samples": 1500},
        enumerated=True,
        easier=capture_recapture_summed,
    ),
    Case(
        "dawid_skene",
        dawid_skene,
        annotations,
        "enumeration",
        {"samples": 1500},
        enumerated=True,
        easier=dawid_skene_summed,
    ),
    Case("change_point", change_point, disasters, "discrete", {"samples": 1500}),
    Case(
        "change_point_enumerated",
        change_point_enumerated,
        disasters,
        "discrete",
        {"samples": 1500},
        enumerated=True,
        easier=change_point,
    ),
    Case("topic_model", topic_model, documents, "simplexes, many modes", {"samples": 1000}),
)
