"""A second look once a fit has settled: integrals over local latents, a bent q. What comes in may go on with the run,
or replace what it found by something that fresh draws call better."""
