"""Rows that depend on each other: autoregressions, volatility, seasons, differential equations."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import lax
from jax.experimental.ode import odeint
from numpyro.contrib.control_flow import scan
from numpyro.infer import init_to_value

from benchmarks.models.case import Case, Data
from benchmarks.models.known import HARES, LYNXES


def recursion(size: int, coefficients: tuple[float, ...], noise: float, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    values = list(np.zeros(len(coefficients)))
    for _ in range(size + 50):
        values.append(sum(a * values[-k] for k, a in enumerate(coefficients, 1)) + noise * rng.normal())
    return np.array(values[-size:])


def ar1_long(y=None):
    """An autoregression on the rows as they are given."""
    mu = numpyro.sample("mu", dist.Normal(0, 1))
    phi = numpyro.sample("phi", dist.Uniform(-1, 1))
    sigma = numpyro.sample("sigma", dist.HalfNormal(1))
    numpyro.sample("y", dist.Normal(mu + phi * y[:-1], sigma), obs=y[1:])


def ar1_scan(y):
    alpha = numpyro.sample("alpha", dist.Normal(0, 1))
    phi = numpyro.sample("phi", dist.Normal(0, 1))
    sigma = numpyro.sample("sigma", dist.HalfNormal(1))

    def transition(y_prev, y_now):
        numpyro.sample("y", dist.Normal(alpha + phi * y_prev, sigma), obs=y_now)
        return y_now, None

    scan(transition, y[0], y[1:])


def ar2(y):
    alpha_1 = numpyro.sample("alpha_1", dist.Normal(0, 1))
    alpha_2 = numpyro.sample("alpha_2", dist.Normal(0, 1))
    const = numpyro.sample("const", dist.Normal(0, 1))
    sigma = numpyro.sample("sigma", dist.HalfNormal(1))

    def transition(carry, y_now):
        y_prev, y_prev_prev = carry
        m_t = const + alpha_1 * y_prev + alpha_2 * y_prev_prev
        numpyro.sample("y", dist.Normal(m_t, sigma), obs=y_now)
        return (y_now, y_prev), m_t

    _, mu = scan(transition, (y[1], y[0]), y[2:])
    numpyro.deterministic("mu", mu)


def ar5(y):
    alpha = numpyro.sample("alpha", dist.Normal(0, 10))
    beta = numpyro.sample("beta", dist.Normal(0, 10).expand([5]).to_event(1))
    sigma = numpyro.sample("sigma", dist.HalfCauchy(2.5))
    lags = jnp.stack([y[5 - k : y.shape[0] - k] for k in range(1, 6)], axis=1)
    numpyro.sample("y", dist.Normal(alpha + lags @ beta, sigma), obs=y[5:])


def two_series() -> Data:
    rng = np.random.default_rng(42)
    lag1, lag2 = np.array([[0.5, 0.1], [-0.2, 0.4]]), np.array([[0.1, 0.0], [0.1, -0.2]])
    noise = rng.multivariate_normal([0, 0], [[0.5, 0.2], [0.2, 0.4]], size=250)
    y = np.zeros((250, 2))
    for t in range(2, 250):
        y[t] = [0.2, -0.1] + lag1 @ y[t - 1] + lag2 @ y[t - 2] + noise[t]
    return Data(None, {"y": y[50:]})


def var2(y):
    K, T = y.shape[1], y.shape[0]
    const = numpyro.sample("constants", dist.Normal(0.0, 1.0).expand([K]).to_event(1))
    sigma = numpyro.sample("sigma", dist.HalfNormal(1.0).expand([K]).to_event(1))
    l_omega = numpyro.sample("l_omega", dist.LKJCholesky(K, 1.0))
    l_sigma = sigma[..., None] * l_omega
    Phi1 = numpyro.sample("Phi1", dist.Normal(0.0, 1.0).expand([K, K]).to_event(2))
    Phi2 = numpyro.sample("Phi2", dist.Normal(0.0, 1.0).expand([K, K]).to_event(2))

    def step(carry, t):
        y_prev2, y_prev1 = carry
        m_t = const + Phi1 @ y_prev1 + Phi2 @ y_prev2
        y_t = numpyro.sample("y", dist.MultivariateNormal(m_t, scale_tril=l_sigma), obs=y[t])
        return (y_prev1, y_t), m_t

    scan(step, (y[0], y[1]), jnp.arange(2, T))


def returns_data() -> Data:
    rng = np.random.default_rng(43)
    log_volatility = -3.0 + np.cumsum(0.12 * rng.normal(size=400))
    return Data(None, {"returns": np.exp(log_volatility) * rng.standard_t(8, size=400)})


def stochastic_volatility(returns):
    step_size = numpyro.sample("sigma", dist.Exponential(50.0))
    s = numpyro.sample("s", dist.GaussianRandomWalk(scale=step_size, num_steps=returns.shape[0]))
    nu = numpyro.sample("nu", dist.Exponential(0.1))
    numpyro.sample("r", dist.StudentT(df=nu, loc=0.0, scale=jnp.exp(s)), obs=returns)


def seasons() -> Data:
    rng = np.random.default_rng(44)
    t = np.arange(72)
    y = 12 + 0.08 * t + 2.5 * np.sin(2 * np.pi * t / 12) + 0.5 * rng.normal(size=72)
    return Data(None, {"y": y, "n_seasons": 12, "future": 12})


def holt_winters(y, n_seasons, future=0):
    """Level, trend and season, smoothed exponentially; a year of forecasts."""
    T = y.shape[0]
    level_smoothing = numpyro.sample("level_smoothing", dist.Beta(1, 1))
    trend_smoothing = numpyro.sample("trend_smoothing", dist.Beta(1, 1))
    adj_seasonality_smoothing = numpyro.sample("adj_seasonality_smoothing", dist.Beta(1, 1))
    seasonality_smoothing = numpyro.deterministic(
        "seasonality_smoothing", adj_seasonality_smoothing * (1 - level_smoothing)
    )
    noise = numpyro.sample("noise", dist.HalfNormal(1))
    level_init = numpyro.sample("level_init", dist.Normal(12, 5))
    trend_init = numpyro.sample("trend_init", dist.Normal(0, 1))
    with numpyro.plate("n_seasons", n_seasons):
        seasonality_init = numpyro.sample("seasonality_init", dist.Normal(0, 3))

    def transition(carry, t):
        previous_level, previous_trend, previous_seasonality = carry
        level = jnp.where(
            t < T,
            level_smoothing * (y[t] - previous_seasonality[0])
            + (1 - level_smoothing) * (previous_level + previous_trend),
            previous_level,
        )
        trend = jnp.where(
            t < T, trend_smoothing * (level - previous_level) + (1 - trend_smoothing) * previous_trend, previous_trend
        )
        new_season = jnp.where(
            t < T,
            seasonality_smoothing * (y[t] - (previous_level + previous_trend))
            + (1 - seasonality_smoothing) * previous_seasonality[0],
            previous_seasonality[0],
        )
        step = jnp.where(t < T, 1, t - T + 1)
        mu = previous_level + step * previous_trend + previous_seasonality[0]
        pred = numpyro.sample("pred", dist.Normal(mu, noise))
        seasonality = jnp.concatenate([previous_seasonality[1:], new_season[None]])
        return (level, trend, seasonality), pred

    with numpyro.handlers.condition(data={"pred": y}):
        _, preds = scan(transition, (level_init, trend_init, seasonality_init), jnp.arange(T + future))
    if future > 0:
        numpyro.deterministic("y_forecast", preds[-future:])


def garch_data() -> Data:
    rng = np.random.default_rng(45)
    y, variance = [0.5], 1.0
    for _ in range(250):
        variance = 0.3 + 0.3 * (y[-1] - 0.2) ** 2 + 0.4 * variance
        y.append(0.2 + np.sqrt(variance) * rng.normal())
    return Data(None, {"y": np.array(y[50:]), "sigma1": 1.0})


def garch11(y, sigma1):
    mu = numpyro.sample("mu", dist.ImproperUniform(dist.constraints.real, (), ()))
    alpha0 = numpyro.sample("alpha0", dist.ImproperUniform(dist.constraints.positive, (), ()))
    alpha1 = numpyro.sample("alpha1", dist.Uniform(0, 1))
    beta1 = numpyro.sample("beta1", dist.Uniform(0, 1 - alpha1))

    def step(variance, y_t):
        return alpha0 + alpha1 * (y_t - mu) ** 2 + beta1 * variance, variance

    _, variances = lax.scan(step, jnp.asarray(sigma1**2, mu.dtype), y)
    numpyro.sample("y", dist.Normal(mu, jnp.sqrt(variances)), obs=y)


def arma_data() -> Data:
    rng = np.random.default_rng(46)
    noise, y = 0.5 * rng.normal(size=300), [0.0]
    for t in range(1, 300):
        y.append(0.1 + 0.7 * y[-1] + 0.4 * noise[t - 1] + noise[t])
    return Data(None, {"y": np.array(y[100:])})


def arma11(y):
    mu = numpyro.sample("mu", dist.Normal(0, 10))
    phi = numpyro.sample("phi", dist.Normal(0, 2))
    theta = numpyro.sample("theta", dist.Normal(0, 2))
    sigma = numpyro.sample("sigma", dist.HalfCauchy(2.5))

    def step(carry, y_t):
        y_prev, err_prev = carry
        err = y_t - (mu + phi * y_prev + theta * err_prev)
        return (y_t, err), err

    first = y[0] - (mu + phi * mu)
    _, errors = lax.scan(step, (y[0], first), y[1:])
    numpyro.factor("err", dist.Normal(0, sigma).log_prob(jnp.concatenate([first[None], errors])).sum())


def pelts() -> Data:
    return Data(None, {"N": 21, "y": np.column_stack([HARES, LYNXES])})


def dz_dt(z, t, theta):
    u, v = z[0], z[1]
    alpha, beta, gamma, delta = theta[0], theta[1], theta[2], theta[3]
    return jnp.stack([(alpha - beta * v) * u, (-gamma + delta * u) * v])


def lotka_volterra(N, y=None):
    z_init = numpyro.sample("z_init", dist.LogNormal(jnp.log(10), 1).expand([2]))
    ts = jnp.arange(float(N))
    theta = numpyro.sample(
        "theta",
        dist.TruncatedNormal(low=0.0, loc=jnp.array([1.0, 0.05, 1.0, 0.05]), scale=jnp.array([0.5, 0.05, 0.5, 0.05])),
    )
    z = odeint(dz_dt, z_init, ts, theta, rtol=1e-6, atol=1e-5, mxstep=1000)
    sigma = numpyro.sample("sigma", dist.LogNormal(-1, 1).expand([2]))
    numpyro.sample("y", dist.LogNormal(jnp.log(z), sigma), obs=y)


def concentrations() -> Data:
    rng = np.random.default_rng(47)
    times = np.linspace(0.5, 10, 20)
    c, h, values = 0.0, 0.01, []
    for step in range(1000):
        t = step * h
        c += h * (0.4 * 10.0 * np.exp(-0.4 * t) / 2.0 - (1.0 / 2.0) * c / (0.7 + c))
        if (step + 1) % 50 == 0:
            values.append(c)
    return Data(None, {"times": times, "C_hat": np.array(values) * np.exp(0.15 * rng.normal(size=20))})


def one_compartment(times, C_hat, dose=10.0, volume=2.0):
    """First-order absorption, Michaelis-Menten elimination."""
    k_a = numpyro.sample("k_a", dist.HalfCauchy(1.0))
    K_m = numpyro.sample("K_m", dist.HalfCauchy(1.0))
    V_m = numpyro.sample("V_m", dist.HalfCauchy(1.0))
    sigma = numpyro.sample("sigma", dist.HalfCauchy(1.0))

    def change(C, t, k_a, K_m, V_m):
        return k_a * dose * jnp.exp(-k_a * t) / volume - V_m / volume * C / (K_m + C)

    grid = jnp.concatenate([jnp.zeros(1), times])
    C = odeint(change, jnp.zeros(()), grid, k_a, K_m, V_m, rtol=1e-6, atol=1e-6, mxstep=1000)[1:]
    numpyro.sample("C_hat", dist.LogNormal(jnp.log(jnp.maximum(C, 1e-6)), sigma), obs=C_hat)


NEAR_PELTS = {
    "theta": np.array([0.55, 0.028, 0.8, 0.024]),
    "z_init": np.array([33.0, 6.0]),
    "sigma": np.full(2, 0.25),
}
"""Where NUTS starts: from afar it may end where all is noise, whose posterior mass is e^-30 of the whole."""

CASES = (
    Case(
        "ar1_12000_rows",
        ar1_long,
        lambda: Data({"y": recursion(12_000, (0.6,), 1.0, 41)}),
        "dependent rows",
        {"samples": 1500},
    ),
    Case(
        "ar1_12000_bound",
        ar1_long,
        lambda: Data(None, {"y": recursion(12_000, (0.6,), 1.0, 41)}),
        "dependent rows",
        {"samples": 1500},
    ),
    Case(
        "ar1_scan",
        ar1_scan,
        lambda: Data(None, {"y": recursion(100, (0.6,), 1.0, 41)}),
        "dependent rows",
        {"samples": 1500},
    ),
    Case(
        "ar2_scan_rows",
        ar2,
        lambda: Data({"y": recursion(100, (0.5, 0.2), 0.7, 48)}),
        "dependent rows",
        {"samples": 1500},
    ),
    Case(
        "ar5",
        ar5,
        lambda: Data(None, {"y": recursion(200, (0.4, 0.1, -0.2, 0.1, 0.1), 0.2, 49)}),
        "dependent rows",
        {"samples": 1500},
    ),
    Case("var2", var2, two_series, "correlation", {"samples": 1500}),
    Case(
        "stochastic_volatility",
        stochastic_volatility,
        returns_data,
        "402 correlated latents",
        {"samples": 4000, "warm_up": 1500},
    ),
    Case("holt_winters", holt_winters, seasons, "dependent rows, future values", {"samples": 1500}),
    Case("garch11", garch11, garch_data, "dependent rows", {"samples": 2500}),
    Case("arma11", arma11, arma_data, "dependent rows", {"samples": 1500}),
    Case(
        "lotka_volterra",
        lotka_volterra,
        pelts,
        "ODE in the model, wrong modes",
        {"samples": 1000, "dense": True, "init": init_to_value(values=NEAR_PELTS)},
    ),
    Case(
        "one_compartment",
        one_compartment,
        concentrations,
        "scales, correlation",
        {"samples": 5000, "dense": True, "target": 0.97},
    ),
)
