"""The curvature that records show: matched and regressed, as an arrow, whitened, or along what many latents share.
One file per way to estimate it; when to step is a memory's question."""
