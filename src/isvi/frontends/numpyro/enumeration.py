"""Discrete latent sites, summed out exactly: by enumerating their values, as NumPyro does it with funsor."""

import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from isvi.core.errors import ModelError, require
from isvi.core.extras import import_extra
from isvi.frontends.numpyro.sites import Site, own_distribution
from isvi.frontends.numpyro.traced import TracedModel


def check_enumerable(traced: TracedModel) -> None:
    """Refuse discrete sites that cannot be summed over, and batch dimensions of which nobody says what they are."""
    for name, site in traced.discrete_sites.items():
        kind = type(own_distribution(site["fn"])).__name__
        require(
            site["fn"].has_enumerate_support,
            ModelError,
            f"The latent site {name!r} is discrete ({kind}) and has no finite list of values to sum over. Sum it out "
            "by hand, with logsumexp over a truncated range in numpyro.factor; or bound it, as dist.Categorical or "
            "dist.Binomial with a fixed total_count.",
        )
        require(
            site["infer"].get("enumerate", "parallel") == "parallel",
            ModelError,
            f"The discrete latent site {name!r} is marked {site['infer'].get('enumerate')!r}; only "
            "infer={'enumerate': 'parallel'} can be summed over.",
        )
    import_extra("funsor", "enumerate", f"summing over the discrete latent site {next(iter(traced.discrete_sites))!r}")
    for name, site in traced.sites.items():
        dim = _unnamed_dim(site) if site["type"] == "sample" else None
        require(
            dim is None,
            ModelError,
            f"To sum over discrete latent sites, every batch dimension must be a numpyro.plate: that of size "
            f"{dim} at site {name!r} is not. Write `with numpyro.plate('rows', {dim}):` around it, or .to_event(1) "
            "if its entries belong together.",
        )


def _unnamed_dim(site: Site) -> int | None:
    """The size of a batch dimension that no plate is for; those of scans are named by these."""
    value, event = jnp.shape(site["value"]), site["fn"].event_dim
    shape = jnp.broadcast_shapes(site["fn"].batch_shape, value[: len(value) - event])
    named = {frame.dim for frame in site["cond_indep_stack"]}
    scanned = -len(shape) if site.get("_control_flow_done", False) else None
    for dim in range(-len(shape), 0):
        if shape[dim] > 1 and dim not in named and dim != scanned:
            return int(shape[dim])
    return None


def marginal_log_density(traced: TracedModel, values: dict[str, Array], rows: Any) -> Array:
    """The log joint of all sites on some rows, with the discrete latents summed out."""
    from numpyro.contrib.funsor import config_enumerate, enum, log_density

    run = traced.runner(rows, *traced.places(values, {}))
    nested = [-frame.dim for site in traced.sites.values() for frame in site.get("cond_indep_stack", ())]
    model = enum(config_enumerate(run), first_available_dim=-max(nested, default=0) - 1)
    return log_density(model, (), {}, {})[0]


def discrete_draws(traced: TracedModel, values: dict[str, Array], rows: Any, seed: int) -> dict[str, np.ndarray]:
    """Draws of the discrete sites from their posterior given draws of the others, and given the observations in the
    rows: one for each, by NumPyro's ``infer_discrete``."""
    from numpyro.infer import Predictive

    scanned = sorted(name for name, site in traced.discrete_sites.items() if site.get("_control_flow_done", False))
    require(
        not scanned,
        ModelError,
        f"NumPyro's infer_discrete cannot draw sites inside a scan, here {scanned}. Write the loop with "
        "numpyro.contrib.funsor.markov for that, and fit with the scan: the log densities are the same.",
    )

    def one(values: dict[str, Array], key: Array) -> dict[str, Array]:
        posterior = {name: value[None] for name, value in traced.located(values, rows).items()}
        simulate = Predictive(traced.runner(rows), posterior_samples=posterior, infer_discrete=True)
        found = simulate(key)
        return {name: found[name][0] for name in traced.discrete_sites}

    keys = jax.random.split(jax.random.key(seed), len(next(iter(values.values()))))
    with warnings.catch_warnings():
        # funsor asks for float64 throughout; in JAX's default precision float32 is what there is.
        warnings.filterwarnings("ignore", message="Explicitly requested dtype", category=UserWarning)
        found = jax.jit(lambda values, keys: jax.lax.map(lambda pair: one(*pair), (values, keys)))(values, keys)
    return jax.device_get(found)
