"""Sites of a NumPyro model, as a trace shows them: which are latent, which plates pick rows, where supports agree."""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro import handlers
from numpyro.distributions import Delta, Unit
from numpyro.infer.initialization import init_to_uniform
from numpyro.primitives import Messenger

UNCONSTRAINED = "_unconstrained"
"""Ends the name of a latent whose support moves with other latents, so that only its unconstrained value has a
fixed space: ``x ~ Uniform(0, y)`` becomes the latent ``x_unconstrained``; results show both."""

Site = dict[str, Any]


def is_latent(site: Site) -> bool:
    """A Delta has its one value whenever it is drawn; a factor (Unit) has none."""
    unknown = site["type"] == "sample" and not site["is_observed"]
    return unknown and not isinstance(own_distribution(site["fn"]), (Delta, Unit))


def own_distribution(distribution: Any) -> Any:
    """A distribution without what plates, masks and `to_event` put around it."""
    while hasattr(distribution, "base_dist") and type(distribution).__name__ in (
        "ExpandedDistribution",
        "Independent",
        "MaskedDistribution",
    ):
        distribution = distribution.base_dist
    return distribution


def is_continuous(site: Site) -> bool:
    """Whether a site is latent and has a density to approximate; discrete ones are summed out."""
    return is_latent(site) and not site["fn"].support.is_discrete


def is_observed(site: Site) -> bool:
    return site["type"] == "sample" and site["is_observed"]


def same_support(one: Any, other: Any) -> bool:
    """Whether two supports are equal, bounds included."""
    ours, theirs = jax.tree.leaves(one), jax.tree.leaves(other)
    return len(ours) == len(theirs) and all(np.array_equal(a, b) for a, b in zip(ours, theirs, strict=True))


def within(radius: float) -> Messenger:
    """Puts the latents at images of points this close to 0."""
    uniform = init_to_uniform(radius=radius)
    return handlers.substitute(substitute_fn=lambda site: uniform(site) if is_latent(site) else None)


def subsampled_plates(function: Callable, args: tuple, kwargs: Mapping[str, Any]) -> dict[str, tuple[int, int]]:
    """The plates of a model whose data are bound that pick some of their rows: how many there are, and how many are
    picked. Seen without drawing indices."""
    with handlers.trace() as sites, _FirstIndices(), within(0), handlers.seed(rng_seed=0):
        function(*args, **kwargs)
    plates = {name: site["args"] for name, site in sites.items() if site["type"] == "plate"}
    return {name: (size, part) for name, (size, part) in plates.items() if part is not None and part != size}


class _FirstIndices(Messenger):
    """Subsampled plates take their first indices."""

    def process_message(self, msg: Site) -> None:
        if msg["type"] == "plate" and msg["value"] is None:
            msg["value"] = jnp.arange(msg["args"][1])
