"""Special functions that several families need: differences of large numbers, integrals over tails, a Dirichlet's
density and its Fisher information."""
