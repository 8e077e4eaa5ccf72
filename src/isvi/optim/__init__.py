"""Optax gradient transformations in the geometry of q, for any algorithm and for loops of one's own. What comes in sees
parameters and an approximation, never a model."""

from isvi.optim.natural import bound_kl, natural_gradient, scale_by_fisher

__all__ = ["bound_kl", "natural_gradient", "scale_by_fisher"]
