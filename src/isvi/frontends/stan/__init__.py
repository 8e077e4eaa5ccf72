"""Stan programs, in Stan's own unconstrained space.

The program is compiled once and evaluated on the host, with all constants and with the Jacobians of its
constraints, so ELBOs are comparable with those of other front ends. Two ways to compile: BridgeStan, for ordinary
use; or the compiler and headers in the httpstan package, which needs no download beyond the package itself.
"""

from isvi.frontends.stan.door import from_stan, from_stan_model

__all__ = ["from_stan", "from_stan_model"]
