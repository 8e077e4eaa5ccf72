"""PyMC models, through PyTensor's export to JAX.

The model's random variables keep their names and their transforms: Gaussian approximations live in the same
unconstrained space in which PyMC would sample. ``pm.Data`` containers with one entry per observed row are what
mini-batches are cut from.
"""

from isvi.frontends.pymc.binding import PymcModel, from_pymc
from isvi.frontends.pymc.posterior import as_trace

__all__ = ["PymcModel", "as_trace", "from_pymc"]
