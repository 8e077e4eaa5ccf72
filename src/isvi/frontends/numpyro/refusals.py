"""Idioms of NumPyro for which there is another way here."""

from collections.abc import Mapping

from isvi.core.errors import ModelError, require
from isvi.frontends.numpyro.sites import Site, is_latent

SEEN, UNSEEN = "_observed", "_unobserved"
"""End the names of the two sites that NumPyro makes of one with ``obs_mask``."""


def check_supported(sites: Mapping[str, Site]) -> None:
    """Refuse ``obs_mask``: it makes a latent for every row, and of those that were seen nothing is known at all, not
    even a prior. (NumPyro does not want it sampled by MCMC either.)"""
    for name, site in sites.items():
        own = name.removesuffix(UNSEEN)
        require(
            own == name or own + SEEN not in sites or not is_latent(site),
            ModelError,
            f"The site {own!r} has an obs_mask, which makes latents without a prior of the rows that were seen. Where "
            f"nothing else depends on what is missing, leave it out: with numpyro.handlers.mask(mask=seen): "
            f"numpyro.sample({own!r}, ..., obs=y); fit.predict() has it afterwards. Where something does, make latents "
            f"of what is missing only: numpyro.sample('missing', dist.Normal(0, 1).expand([count]).mask(False)), and "
            f"numpyro.sample({own!r}, ..., obs=y.at[places].set(missing)).",
        )
