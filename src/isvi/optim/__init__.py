"""Steps in the geometry of the problem: natural gradients, curvature from stored records, secants, trust regions."""

from isvi.optim.natural import bound_kl, natural_gradient, scale_by_fisher

__all__ = ["bound_kl", "natural_gradient", "scale_by_fisher"]
