"""NumPyro models: an ordinary model function, found out about by tracing it.

Rules, in short. Latents are the unobserved sample sites. An observed site (also ``numpyro.factor``) that depends
on the mini-batch, through its rows or through their number, is likelihood and is scaled to all rows; any other
observed site, such as a soft constraint, belongs to the prior and is counted once. Scales that plates would add
for subsampling are taken out again, since the library scales.
"""

from isvi.frontends.numpyro.binding import NumpyroModel, from_numpyro
from isvi.frontends.numpyro.sites import UNCONSTRAINED

__all__ = ["UNCONSTRAINED", "NumpyroModel", "from_numpyro"]
