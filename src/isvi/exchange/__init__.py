"""A posterior in other people's terms: ArviZ's groups, leave-one-out, simulated data, and a start for MCMC. Reached by
the methods of :class:`isvi.Fit`."""
