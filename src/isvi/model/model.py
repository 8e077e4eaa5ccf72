"""The model as the user writes it: in constrained space, with named latents."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from jaxtyping import Array, PRNGKeyArray

from isvi.core.errors import ModelError, require
from isvi.core.latents import Latent

LogPrior = Callable[[dict[str, Array]], Array]
LogLikelihood = Callable[[dict[str, Array], Any], Array]
Simulate = Callable[[PRNGKeyArray, dict[str, Array], Any], Any]
DrawPrior = Callable[[PRNGKeyArray], Mapping[str, Any]]
Report = Callable[[dict[str, Any]], Mapping[str, Any]]
Predict = Callable[[dict[str, Any], Any, int], Mapping[str, Any]]
Groups = Mapping[str, Mapping[str, Any]]
Initial = Callable[[Any], Mapping[str, Any]]
Unreport = Callable[[Mapping[str, Any]], Mapping[str, Any]]


@dataclass(frozen=True)
class Model:
    """A Bayesian model: named latents, a log prior, and a log likelihood of a batch of rows.

    Both densities receive a dict of constrained values. The Jacobians of the constraints and the scaling of
    mini-batches to the size of the data are added by the library: write neither.

    Args:
        latents: for instance ``{"w": isvi.real(500), "tau": isvi.positive()}``.
        log_prior: ``log_prior(z) -> scalar``. With no likelihood, this is the whole log density.
        log_likelihood: ``log_likelihood(z, batch) -> scalar``, summed over the rows of the batch.
            ``batch`` has the structure of the data passed to :func:`isvi.fit`. With local latents:
            ``log_likelihood(z, row) -> scalar``, of one row.
        report: ``report(draws) -> dict``: what the posterior shows for draws of the latents (with a leading
            axis), if that is more than the latents themselves: quantities computed from them, or their values
            in the space that the user of a front end thinks in.
        shown_as: under which name of ``report`` to look for a latent that is a helper of the library's own: verdicts
            are about what the user wrote.
        unreport: the way back, for initial values that the user gives in that space.
        predict: ``predict(draws, data, seed) -> dict`` of posterior predictive draws; ``data`` None means the
            rows that were fitted.
        infer_discrete: the same, of discrete latents that the densities sum out: from their posterior, given the
            draws and the observations.
        initial: ``initial(given) -> dict`` of constrained values at which to start: ``given`` is what the user passed
            as ``initial``, or None. For front ends whose models have initial values, or their own way to name them.
        dims: names of the axes of what is reported, by latent, for ArviZ.
        coords: labels along these axes.
        groups: further groups of the DataTree, such as ``{"observed_data": {...}}``; or a function that gives them,
            called when they are needed.
        local: latents of one group of rows (``isvi.data.grouped``), or of one row, such as ``{"u": isvi.real(2)}``.
            They are integrated out: see ``docs/local.md``.
        log_local_prior: ``log_local_prior(z) -> scalar``, of the local latents of one group given the others. As for
            ``log_likelihood``, ``z`` holds both.
        nodes: how many nodes the integral over a group's latents takes, per dimension; beyond three dimensions, in all.
        pointwise: ``pointwise(z, batch) -> (rows,)``: the log likelihood row by row, for leave-one-out. By default
            ``log_likelihood`` is called with one row at a time, which is the same if it is a sum over rows.
        simulate: ``simulate(key, z, batch) -> dict`` of simulated columns of the batch, by name: for predictions.
        draw_prior: ``draw_prior(key) -> dict``: a draw of the latents from the prior, for :func:`isvi.calibrate`.

    >>> import isvi, jax.numpy as jnp
    >>> from jax.scipy.stats import norm
    >>> model = isvi.Model(
    ...     latents={"mean": isvi.real()},
    ...     log_prior=lambda z: norm.logpdf(z["mean"]),
    ...     log_likelihood=lambda z, batch: jnp.sum(norm.logpdf(batch["x"], z["mean"])),
    ... )
    """

    latents: Mapping[str, Latent]
    log_prior: LogPrior
    log_likelihood: LogLikelihood | None = None
    report: Report | None = None
    shown_as: Mapping[str, str] = field(default_factory=dict)
    unreport: Unreport | None = None
    predict: Predict | None = None
    infer_discrete: Predict | None = None
    initial: Initial | None = None
    dims: Mapping[str, Sequence[str]] | None = None
    coords: Mapping[str, Sequence[Any]] | None = None
    groups: Groups | Callable[[], Groups] | None = None
    local: Mapping[str, Latent] | None = None
    log_local_prior: LogPrior | None = None
    nodes: int | None = None
    pointwise: LogLikelihood | None = None
    simulate: Simulate | None = None
    draw_prior: DrawPrior | None = None

    def __post_init__(self) -> None:
        require(
            isinstance(self.latents, Mapping) and len(self.latents) > 0,
            ModelError,
            f"latents must be a non-empty mapping of names to latents; got {self.latents!r}.",
        )
        for name, latent in {**self.latents, **(self.local or {})}.items():
            require(
                isinstance(latent, Latent),
                ModelError,
                f"latent {name!r} must be made by isvi.real(), isvi.positive(), isvi.simplex() or the like; "
                f"got {latent!r}.",
            )
        require(callable(self.log_prior), ModelError, f"log_prior must be a function; got {self.log_prior!r}.")
        require(
            self.log_likelihood is None or callable(self.log_likelihood),
            ModelError,
            f"log_likelihood must be a function or None; got {self.log_likelihood!r}.",
        )
        if self.local is not None or self.log_local_prior is not None:
            self._require_local_parts()

    def _require_local_parts(self) -> None:
        require(
            isinstance(self.local, Mapping) and len(self.local) > 0 and callable(self.log_local_prior),
            ModelError,
            "local latents come with their density: local={...} and log_local_prior=lambda z: ...; got "
            f"local={self.local!r} and log_local_prior={self.log_local_prior!r}.",
        )
        require(
            self.log_likelihood is not None,
            ModelError,
            "a model with local latents needs a log_likelihood(z, row) of one row.",
        )
        shared = sorted(set(self.latents) & set(self.local or {}))
        require(
            not shared,
            ModelError,
            f"{shared} is in latents and in local: a latent either has one value for all groups (latents), or one for "
            "each group (local).",
        )
