"""Models written elsewhere: NumPyro, PyMC, Stan, or any callable with a gradient.

Each adapter turns a model into an :class:`isvi.Model`, or into something that becomes one when
:func:`isvi.fit` gives it its data. A further one is a file, or a folder if it needs several. The other packages
are imported only when their adapter is used.
"""

from isvi.frontends.gradient import from_gradient
from isvi.frontends.numpyro import from_numpyro
from isvi.frontends.pymc import from_pymc
from isvi.frontends.stan import from_stan

__all__ = ["from_gradient", "from_numpyro", "from_pymc", "from_stan"]
