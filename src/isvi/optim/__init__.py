"""Steps in the geometry of the problem: curvature learned from stored records, secants, trust regions."""
