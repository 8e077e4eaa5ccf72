"""Simulated data for draws of the latents."""

from typing import TYPE_CHECKING, Any

import numpy as np

from isvi.core.errors import ConfigurationError
from isvi.data.arrays import checked_arrays
from isvi.exchange.pointwise import fitted_rows, simulate

if TYPE_CHECKING:
    from isvi.results.fit import Fit


def predict(fit: "Fit", latents: dict[str, np.ndarray], data: Any, seed: int) -> dict[str, np.ndarray]:
    """By the model's ``simulate``, or by its front end; ``data`` None means the rows that were fitted."""
    if fit.model.simulate is not None:
        rows = fitted_rows(fit) if data is None else checked_arrays(data)[0]
        return simulate(fit.model, latents, rows, seed)
    if fit.model.predict is None:
        raise ConfigurationError(
            "This model cannot simulate data: it has densities only. Give it isvi.Model(..., simulate=lambda key, z, "
            "rows: ...), or write it in NumPyro and use isvi.from_numpyro."
        )
    return dict(fit.model.predict(latents, data, seed))
