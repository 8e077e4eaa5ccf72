"""Yesterday's posterior as today's prior: new rows without the old ones."""

import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Array

from isvi.core.coordinates import entry_labels
from isvi.core.errors import ConfigurationError, require
from isvi.model.binding import Bindable, Bound, bind
from isvi.model.external.model import ExternalModel, no_log_prior
from isvi.model.model import Model
from isvi.results.status import some

if TYPE_CHECKING:
    from isvi.results.fit import Fit

log = logging.getLogger("isvi")

FARTHEST = 4.0
"""Sds of the old posterior that a mean may move by: q is known to be like the posterior where it has draws, and not in
its tails. With rows like the old ones a mean moves by less than its sd, as a martingale does: of a hundred entries one
goes as far in less than one of a hundred updates."""


@dataclass(frozen=True)
class Updated:
    """A model whose prior is the posterior of an earlier fit of it."""

    model: Model | Bindable
    prior: "Fit"

    def bind(self, data: Any, batch_size: int | None) -> Bound:
        bound = bind(self.model, data, batch_size)
        model = bound.model
        require(
            model.log_likelihood is not None or isinstance(model, ExternalModel),
            ConfigurationError,
            "prior=fit needs a model with a log_likelihood: of a bare density nobody can tell what is prior.",
        )
        require(
            not isinstance(model, ExternalModel) or model.log_prior is not no_log_prior,
            ConfigurationError,
            "prior=fit needs a prior that is given apart, log_prior=...: this model's function holds both, and the "
            "prior would be counted again.",
        )
        known = {name: latent.shape for name, latent in self.prior.model.latents.items()}
        found = {name: latent.shape for name, latent in model.latents.items()}
        require(
            known == found,
            ConfigurationError,
            f"prior=fit must be a fit of the same latents: it has {known}, and the model {found}.",
        )
        return bound._replace(model=replace(model, log_prior=self._log_density))

    def _log_density(self, values: dict[str, Array]) -> Array:
        """The density of q, of constrained values."""
        approximation, params = self.prior.approximation, self.prior.params
        z = approximation.coordinates.encode(values)
        return approximation.log_density(params, z).sum() - approximation.coordinates.decode(z)[1]


def updated(model: Model | Bindable, prior: "Fit") -> Updated:
    """The model with another prior, if that can be relied on as far as is known without data."""
    require(
        prior.status.good and prior.finite,
        ConfigurationError,
        f"prior=fit must be a fit that ended well; this one {prior.status}.",
    )
    return Updated(model, prior)


def warn_if_far(prior: "Fit", fit: "Fit") -> None:
    """Say so if new rows pull the posterior to where the old one was never checked."""
    before, width, after = prior.mean(), prior.sd(), fit.mean()
    names, moved = [], []
    for name in fit.model.latents:
        if name in before and name in after:  # front ends may show a latent under another name
            names += entry_labels(name, np.shape(after[name]))
            moved.append(np.ravel(np.abs(after[name] - before[name]) / width[name]))
    distance = np.concatenate(moved) if moved else np.zeros(0)
    far = distance > FARTHEST
    if far.any():
        log.warning(
            "the new rows move %s by up to %.1f sds of the earlier posterior, where its approximation was never "
            "checked: fit all rows together",
            some(names, far),
            distance.max(),
        )
