"""Latents that belong to one group or one row each, integrated out inside the log likelihood."""

from isvi.model.local.binding import bind_local, evaluations_per_row, marginal_of
from isvi.model.local.marginal import Marginal

__all__ = ["Marginal", "bind_local", "evaluations_per_row", "marginal_of"]
