"""isvi where a NumPyro user has an ``SVI``: the same calls, and parameters that the same autoguide understands."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array
from numpyro import handlers
from numpyro.infer import init_to_uniform
from numpyro.infer.autoguide import AutoDiagonalNormal, AutoMultivariateNormal, AutoNormal

from isvi.core.errors import ConfigurationError, require
from isvi.families import Family, FullRank, MeanField
from isvi.families.block import BlockParams
from isvi.fitting.fit import fit
from isvi.frontends.numpyro import UNCONSTRAINED, from_numpyro
from isvi.results.fit import Fit


class SVIResult(NamedTuple):
    """What NumPyro's ``SVIRunResult`` holds, with isvi's own result in place of the optimizer's state."""

    params: dict[str, Array]
    """For the guide: ``guide.sample_posterior(key, result.params, sample_shape=(1000,))``."""
    fit: Fit
    """The :class:`isvi.Fit`."""
    losses: np.ndarray
    """Negative ELBO estimates, one per row of the fit's history."""


class SVI:
    """Takes the place of ``numpyro.infer.SVI`` for Gaussian autoguides.

    Args:
        model: the model function.
        guide: an ``AutoNormal``, ``AutoDiagonalNormal`` or ``AutoMultivariateNormal`` of the model.
        optim: an optax optimizer, or None for isvi's default.
        **options: further options of :func:`isvi.fit`, such as ``algorithm`` or ``num_samples``.
    """

    def __init__(
        self, model: Callable, guide: Any, optim: optax.GradientTransformation | None = None, **options: Any
    ) -> None:
        require(
            optim is None or hasattr(optim, "update"),
            ConfigurationError,
            f"optim must be an optax optimizer such as optax.adam(0.01), or None for isvi's default; got {optim!r}.",
        )
        self.model, self.guide = model, guide
        initial = getattr(guide, "init_loc_fn", init_to_uniform)
        if initial is not init_to_uniform:  # which is NumPyro's word for anywhere
            options = {"initial": initial, **options}
        self._options = {**options, "family": _family(guide), **({} if optim is None else {"optimizer": optim})}

    def run(self, rng_key: Array, num_steps: int, *args: Any, progress_bar: bool = True, **kwargs: Any) -> SVIResult:
        """Fit with as many model gradients as NumPyro's SVI would evaluate in ``num_steps`` steps."""
        seed = int(jax.random.randint(rng_key, (), 0, np.iinfo(np.int32).max))
        draws = self._options.get("num_samples") or 1
        progress = None if progress_bar else False
        fitted = fit(
            from_numpyro(self.model, *args, **kwargs),
            **{"budget": num_steps * draws, "seed": seed, "progress": progress, **self._options},
        )
        if self.guide.prototype_trace is None:
            with handlers.block(), handlers.seed(rng_seed=rng_key):
                self.guide(*args, **kwargs)
        return SVIResult(guide_params(self.guide, fitted), fitted, -np.asarray(fitted.history.elbo))


def guide_params(guide: Any, fitted: Fit) -> dict[str, Array]:
    """A fit's parameters, under the names and in the order that the autoguide uses."""
    entries = {entry.name.removesuffix(UNCONSTRAINED): entry for entry in fitted.approximation.coordinates.entries}
    location, cholesky = _location_and_cholesky(fitted.params)
    scale = jnp.sqrt(jnp.sum(cholesky**2, axis=1))
    if isinstance(guide, AutoNormal):
        params = {}
        for name, entry in entries.items():
            params[f"{name}_{guide.prefix}_loc"] = location[entry.start : entry.stop].reshape(entry.shape)
            params[f"{name}_{guide.prefix}_scale"] = scale[entry.start : entry.stop].reshape(entry.shape)
        return params
    # These guides lay the sites out in the model's order, whatever the order of the family.
    names = [name.removesuffix(UNCONSTRAINED) for name in fitted.model.latents]
    order = np.concatenate([np.arange(entries[name].start, entries[name].stop) for name in names])
    if isinstance(guide, AutoDiagonalNormal):
        return {f"{guide.prefix}_loc": location[order], f"{guide.prefix}_scale": scale[order]}
    covariance = (cholesky @ cholesky.T)[order][:, order]
    return {f"{guide.prefix}_loc": location[order], f"{guide.prefix}_scale_tril": jnp.linalg.cholesky(covariance)}


def _family(guide: Any) -> Family:
    if isinstance(guide, AutoMultivariateNormal):
        return FullRank()
    require(
        isinstance(guide, (AutoNormal, AutoDiagonalNormal)),
        ConfigurationError,
        "isvi can stand in for AutoNormal, AutoDiagonalNormal and AutoMultivariateNormal guides; got "
        f"{type(guide).__name__}. For other shapes of the posterior see the families of isvi.fit.",
    )
    return MeanField()


def _location_and_cholesky(params: Any) -> tuple[Array, Array]:
    if isinstance(params, BlockParams):
        return params.loc, params.cholesky[0]
    return params.loc, jnp.diag(jnp.exp(params.log_scale))
