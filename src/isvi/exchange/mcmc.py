"""From an approximation to the posterior itself: NumPyro's NUTS, in the coordinates in which q is standard."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from isvi.core.errors import ConfigurationError, require
from isvi.data.dataset import Dataset
from isvi.exchange.standard import starts
from isvi.model.binding import make_target
from isvi.results.weights.evaluation import in_one_precision
from isvi.results.weights.exploration import Frame
from isvi.results.weights.standard import standard
from isvi.results.weights.unconstrained import Unconstrained

if TYPE_CHECKING:
    from xarray import DataTree

    from isvi.results.fit import Fit

log = logging.getLogger("isvi")

SHORT_WARMUP, LONG_WARMUP = 100, 500
"""Where q is right, only the length of a step is to be found; elsewhere the covariance too."""
LARGEST_DENSE_MASS = 200
"""Entries up to which the covariance is adapted as a whole: some hundred draws cannot tell more."""
LARGEST_R_HAT = 1.01
"""Vehtari et al. (2021), Rank-normalization, folding, and localization: an improved R-hat."""
TAILS = (0.05, 0.95)
STATISTICS = ("r_hat", "ess_bulk", "ess_tail", "mean_error", "sd_ratio")


class Chains(NamedTuple):
    """What NUTS gave, in unconstrained space."""

    draws: Float[np.ndarray, "chains draws size"]
    log_joint: Float[np.ndarray, "chains draws"]
    diverging: Bool[np.ndarray, "chains draws"]
    leapfrogs: Int[np.ndarray, "chains draws"]
    acceptance: Float[np.ndarray, "chains draws"]
    warmup_leapfrogs: int


def mcmc(fit: "Fit", num_samples: int, chains: int, warmup: int | None, seed: int) -> "DataTree":
    """See :meth:`isvi.Fit.mcmc`."""
    for name, number, least in (("num_samples", num_samples, 4), ("chains", chains, 1)):
        require(number >= least, ConfigurationError, f"{name} must be at least {least}; got {number}.")
    require(warmup is None or warmup >= 1, ConfigurationError, f"warmup must be at least 1 step; got {warmup}.")
    data = fit.data()
    require(
        isinstance(data, Dataset),
        ConfigurationError,
        "MCMC evaluates all rows at every step, and these are streamed. Fit a part of them that fits in memory, and "
        "continue from that fit.",
    )
    trusted = fit.diagnose(seed=seed).good
    steps = (SHORT_WARMUP if trusted else LONG_WARMUP) if warmup is None else warmup
    space = Unconstrained(fit.approximation.coordinates)
    first = space.enter(np.asarray(starts(fit, chains, seed), np.float64))[0]
    run = in_one_precision(lambda: _run(fit, data, standard(fit), first, num_samples, steps, not trusted, seed))
    return _tree(fit, space, run, steps)


def _run(
    fit: "Fit",
    data: Any,
    frame: Frame,
    first: Float[np.ndarray, "chains size"],
    num_samples: int,
    warmup: int,
    adapt: bool,
    seed: int,
) -> Chains:
    from numpyro.infer import MCMC, NUTS

    target = make_target(fit.model, Unconstrained(fit.approximation.coordinates).plain)
    with _double_precision(target.on_host):
        rows = jax.tree.map(lambda a: a.astype(float) if jnp.issubdtype(a.dtype, jnp.floating) else a, data)

        def potential(eps: Array) -> Array:
            return -target.exact_values(frame.leave(eps)[None], rows)[0]

        kernel = NUTS(
            potential_fn=potential,
            adapt_mass_matrix=adapt,
            dense_mass=adapt and first.shape[1] <= LARGEST_DENSE_MASS,
        )
        sampler = MCMC(
            kernel,
            num_warmup=warmup,
            num_samples=num_samples,
            num_chains=len(first),
            chain_method="vectorized",
            progress_bar=False,
        )
        fields = ("num_steps", "diverging", "accept_prob", "potential_energy")
        start = jnp.asarray(frame.enter(first))
        sampler.warmup(
            jax.random.key(seed),
            init_params=start if len(first) > 1 else start[0],
            extra_fields=fields,
            collect_warmup=True,
        )
        spent = int(np.sum(sampler.get_extra_fields()["num_steps"]))
        sampler.run(sampler.post_warmup_state.rng_key, extra_fields=fields)
        found = sampler.get_extra_fields(group_by_chain=True)
        draws = frame.leave(sampler.get_samples(group_by_chain=True))
        return Chains(
            draws=np.asarray(draws),
            log_joint=-np.asarray(found["potential_energy"]),
            diverging=np.asarray(found["diverging"]),
            leapfrogs=np.asarray(found["num_steps"]),
            acceptance=np.asarray(found["accept_prob"]),
            warmup_leapfrogs=spent,
        )


@contextmanager
def _double_precision(on_host: bool) -> Iterator[None]:
    """For this thread; or for all, where the model is called back in a thread of JAX's own."""
    before = jax.dtypes.canonicalize_dtype(float).itemsize == 8
    with jax.enable_x64(True):
        try:
            if on_host:
                jax.config.update("jax_enable_x64", True)
            yield
        finally:
            if on_host:
                jax.config.update("jax_enable_x64", before)


def _tree(fit: "Fit", space: Unconstrained, run: Chains, warmup: int) -> "DataTree":
    import arviz_base
    import xarray

    chains, number, size = run.draws.shape
    z = space.leave(run.draws.reshape(-1, size))[0]
    with jax.enable_x64(True):
        flat = fit._constrained(jnp.asarray(z))
    posterior = {name: np.asarray(values).reshape(chains, number, *values.shape[1:]) for name, values in flat.items()}
    leapfrogs = int(run.leapfrogs.sum()) + run.warmup_leapfrogs
    attributes = {
        "inference_library": "numpyro",
        "started_from": "isvi",
        "warmup": warmup,
        "model_gradients": leapfrogs * fit.data().num_batches,
    }
    stats = {
        "lp": run.log_joint,
        "diverging": run.diverging,
        "n_steps": run.leapfrogs,
        "acceptance_rate": run.acceptance,
    }
    dims = {name: list(axes) for name, axes in (fit.model.dims or {}).items() if name in posterior}
    tree = arviz_base.from_dict(
        {"posterior": posterior, "sample_stats": stats},
        attrs={"posterior": attributes},
        dims=dims,
        coords=fit.model.coords,
    )
    judged = _judged(fit, posterior)
    _warn(judged, int(run.diverging.sum()))
    shown = tree["posterior"].to_dataset()
    tree["diagnostics"] = xarray.Dataset(
        {name: (("statistic", *shown[name].dims[2:]), values) for name, values in judged.items()},
        coords={"statistic": list(STATISTICS)},
    )
    return tree


def _judged(fit: "Fit", posterior: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """R-hat and effective sample sizes; and how far q was off: the error of its mean in the posterior's sds, and the
    posterior's sd over q's."""
    from arviz_stats.base import array_stats  # imported late: see isvi.results.weights.smoothing

    means, sds = fit.mean(), fit.sd()
    judged = {}
    for name, values in posterior.items():
        mean, sd = values.mean(axis=(0, 1)), values.std(axis=(0, 1), ddof=1)
        axes = {"chain_axis": 0, "draw_axis": 1}
        with np.errstate(divide="ignore", invalid="ignore"):
            rows = [
                array_stats.rhat(values, **axes),
                array_stats.ess(values, **axes, method="bulk"),
                array_stats.ess(values, **axes, method="tail", prob=TAILS),
                (means[name] - mean) / sd,
                sd / sds[name],
            ]
        judged[name] = np.stack([np.broadcast_to(row, mean.shape) for row in rows])
    return judged


def _warn(judged: dict[str, np.ndarray], divergences: int) -> None:
    worst = max((float(np.nanmax(rows[0], initial=1.0)) for rows in judged.values()), default=1.0)
    if worst > LARGEST_R_HAT:
        log.warning("mcmc: R-hat is up to %.3f; the chains do not agree. More draws, or a longer warmup", worst)
    if divergences:
        log.warning("mcmc: %s divergent transitions; write the model in other parameters", f"{divergences:,}")
