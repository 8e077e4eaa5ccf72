"""``numpyro.param`` sites: those of a network whose weights have a prior, and those that ask for an optimum."""

from collections.abc import Mapping
from typing import Any

import jax
from numpyro.primitives import Messenger

from isvi.core.errors import ModelError, require
from isvi.frontends.numpyro.sites import Site, is_latent

MODULE = "$params"
"""Ends the name of the site that NumPyro keeps a network's initial weights in."""


class GivenParams(Messenger):
    """Params to which the user's own handlers give a value (``handlers.substitute``) are constants: single arrays are
    reported as deterministic sites are."""

    def process_message(self, msg: Site) -> None:
        if msg["type"] == "param" and msg["value"] is not None:
            msg["type"] = "deterministic" if jax.tree_util.all_leaves([msg["value"]]) else "constant"


def check_params(sites: Mapping[str, Site]) -> None:
    """Refuse what has no prior. ``random_flax_module`` and its kin state one for every array of a network."""
    for name, site in sites.items():
        without = _without_prior(name, site["value"], sites) if site["type"] == "param" else []
        if not without:
            continue
        module = name.removesuffix(MODULE)
        advice = (
            f"Give every weight a prior: numpyro.contrib.module.random_flax_module({module!r}, ..., prior=...), "
            "random_nnx_module or random_eqx_module. A decoder with an amortised guide (a VAE) is optimised, not "
            "inferred: use numpyro.infer.SVI for it."
            if name.endswith(MODULE)
            else f"Give it a prior, with numpyro.sample or around the model: numpyro.handlers.lift(model, "
            f"prior={{{name!r}: dist.Normal(0, 1)}}); or a value: numpyro.handlers.substitute(model, "
            f"data={{{name!r}: ...}})."
        )
        require(
            False,
            ModelError,
            f"numpyro.param({name!r}) asks for an optimum beside the posterior, not for a posterior"
            f"{'' if without == [name] else f', in {without[0]}'}. {advice}",
        )


def _without_prior(name: str, value: Any, sites: Mapping[str, Site]) -> list[str]:
    """The arrays of a param site for which there is no latent site. NumPyro replaces those with a prior by their shapes
    (flax, nnx), or leaves them (Equinox); the latent sites have the module's name, a divider, and the path."""
    if not name.endswith(MODULE):
        return [name]
    module = name.removesuffix(MODULE)
    latent = [site for site in sites if site.startswith(module) and is_latent(sites[site])]
    paths = [jax.tree_util.keystr(path)[1:] for path, _ in jax.tree_util.tree_leaves_with_path(value)]
    return [path for path in paths if not any(site.endswith(path) for site in latent)]
