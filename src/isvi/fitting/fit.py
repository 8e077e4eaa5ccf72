"""``isvi.fit``: from a model and data to an approximation of the posterior; ``isvi.resume``: going on with one."""

import logging
import signal
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import optax

from isvi.algorithms import AlgorithmOptions
from isvi.checkpoints.checkpoints import Checkpoint, Checkpoints
from isvi.checkpoints.choices import restored
from isvi.checkpoints.identity import differences, identify, read_identity, refuse_another_run, write_identity
from isvi.core.errors import CheckpointError, ConfigurationError, require
from isvi.core.settings import own_settings
from isvi.data.devices import Devices
from isvi.estimators import EstimatorOptions
from isvi.exchange.updating import updated, warn_if_far
from isvi.families import Family
from isvi.families.base import Params
from isvi.fitting.options import Options
from isvi.fitting.outcome import Outcome, endless
from isvi.fitting.run import begin, run, template
from isvi.fitting.running.callbacks import Callback, Reporters, reporters
from isvi.fitting.running.interruption import ctrl_c_stays_itself
from isvi.fitting.running.making import Making
from isvi.fitting.setup import Setup, prepare
from isvi.model.binding import Bindable
from isvi.model.model import Model
from isvi.results.fit import Fit
from isvi.results.status import NOT_CONVERGED
from isvi.workers import Workers, chosen_workers

log = logging.getLogger("isvi")

DRAWS_TO_COMPARE = 50
"""Passes over the data, for each of two ELBOs."""
DEPENDENT_ROWS = "the log likelihood is not a sum over independent rows, and all of them were used at once"

SEEN = "windows"
"""What checkpoints call the sums of the windows of data that the run has read."""


@own_settings()
@ctrl_c_stays_itself()
def fit(
    model: Model | Bindable,
    data: Any = None,
    *,
    family: Family | Mapping[str, Family] | None = None,
    algorithm: AlgorithmOptions | None = None,
    estimator: EstimatorOptions | None = None,
    optimizer: optax.GradientTransformation | None = None,
    batch_size: int | None = None,
    num_samples: int | None = None,
    budget: int | None = None,
    initial: Mapping[str, Any] | Callable | None = None,
    initial_scale: float | None = None,
    starts: int | None = None,
    seed: int = 0,
    independent_rows: bool | None = None,
    progress: bool | None = None,
    checkpoint: str | Path | Checkpoint | None = None,
    callbacks: Sequence[Callback] = (),
    prior: Fit | None = None,
    workers: int | Workers | Executor | None = None,
    devices: Devices | None = None,
) -> Fit:
    """Fit a variational approximation to the posterior.

    Args:
        model: the latents and their log densities; or a model of a front end, such as ``isvi.from_numpyro(...)``.
        data: dict or tuple of arrays with a common first axis, or a DataFrame; None for a bare density. Data larger
            than memory: memory-mapped arrays, or a source such as :class:`isvi.data.Parquet`.
        family: the shape of the approximation, or a mapping from latents to families. By default as full as can be
            afforded: ``FullRank()`` up to 1,000 entries of latents, ``MeanField()`` beyond, and where another
            algorithm, estimator or optimizer is chosen. Where all data is one mini-batch, with up to 50 entries, the
            Gaussian is bent (``Warped()``) if draws that were not used say that this is better; with up to 500 entries
            of a model in JAX, it may become one given a few latents that drive it (``Nested()``).
        algorithm: when the model is evaluated and which evaluations are used. By default :class:`isvi.Auto`,
            which chooses everything else too; for families that are not Gaussian :class:`isvi.Natural`; if an
            optimizer or an estimator is given, :class:`isvi.ISGD`.
        estimator: how the ELBO's gradient is estimated from them.
        optimizer: any optax optimizer; by default Adam, with a rate that falls to zero over the budget.
        batch_size: rows per mini-batch; by default 1,000, or all if there are no more than that (for ``Auto``
            and ``Natural`` with at most 100 entries of latents: no more than 10,000).
        num_samples: draws per record; shorthand for the estimator's option of that name.
        budget: how many model gradients (of one mini-batch, at one draw) may be evaluated.
        initial: constrained values at which to start, by latent; others start near the image of 0. For a NumPyro model
            also one of NumPyro's strategies, such as ``init_to_median()``; a PyMC model's ``initval`` are taken
            unless others are given.
        initial_scale: standard deviation at the start, in the coordinates of the approximation: by default 0.1, or
            0.001 for ``Auto``, which finds the right one itself.
        starts: how many points to start from: a few records are spent at each, more at the best of them, and the rest
            at one. They lie within 2 of the first, in unconstrained entries. By default 8 where all data is one
            mini-batch and no initial values are given; with several mini-batches the other 7 only if the log joint
            curves upwards where the first one begins, as between modes. ``fit.starts`` has them.
        seed: everything random follows from it: the same seed gives the same bits.
        independent_rows: whether the log likelihood is a sum over the rows, so that they can be cut into mini-batches.
            Found out by default, on the first rows; where they depend on each other, as in a time series, all are used
            at once, in their order, and the status says so.
        progress: True for progress in any place, False for none, None for a bar where there is a terminal.
        checkpoint: a folder to save the run in about once a minute and at the end, so that :func:`isvi.resume` can
            go on with it; or a :class:`isvi.Checkpoint` to choose how often.
        callbacks: told about the fit while it runs, such as ``isvi.TensorBoard("logs/")``.
        prior: an earlier fit of the same model to other rows, whose posterior takes the place of the model's prior:
            the old rows are not needed again.
        workers: who makes the records, if not this process: a number of processes on this machine, or
            :class:`isvi.Ray`, :class:`isvi.Pool`, or an executor of :mod:`concurrent.futures`. Their number does not
            change the result, unless they are asynchronous.
        devices: spread the rows of every mini-batch over so many of ``jax.devices()``, or over these, such as the GPUs
            of a machine. The result is the same up to rounding.

    Ctrl-C ends the fit after the present chunk of steps, and what there is is returned; twice raises at once. SIGTERM
    ends the process, as always; with a ``checkpoint``, after everything was saved (:class:`isvi.Checkpoint`).
    """
    if prior is not None:
        require(
            checkpoint is None,
            ConfigurationError,
            "checkpoint and prior cannot go together: a checkpoint does not know the earlier fit. Leave one out.",
        )
        model = updated(model, prior)
    making = _making(workers, devices, model, data)
    options = Options(family, algorithm, estimator, batch_size, budget, initial_scale, starts, seed, independent_rows)
    setup = prepare(model, data, options, optimizer, num_samples, initial, devices)
    start = setup.checked_start(initial)
    report = reporters(progress, setup.budget_of_method, callbacks)
    if checkpoint is None:
        result = _finished(setup, run(setup, begin(setup, start), report, making), report)
        if prior is not None:
            warn_if_far(prior, result)
        return result
    with _checkpoints(checkpoint, setup) as checkpoints:
        refuse_another_run(checkpoints.run_folder)
        outcome = begin(setup, start)
        checkpoints.begin(outcome.state, outcome.notes())
        write_identity(checkpoints.run_folder, _identity(setup))  # last: killed before, it can start again
        return _finished(setup, run(setup, outcome, report, making, checkpoints), report, checkpoints)


@own_settings()
@ctrl_c_stays_itself()
def resume(
    checkpoint: str | Path | Checkpoint,
    model: Model | Bindable,
    data: Any = None,
    *,
    family: Family | Mapping[str, Family] | None = None,
    algorithm: AlgorithmOptions | None = None,
    estimator: EstimatorOptions | None = None,
    optimizer: optax.GradientTransformation | None = None,
    progress: bool | None = None,
    callbacks: Sequence[Callback] = (),
    workers: int | Workers | Executor | None = None,
    devices: Devices | None = None,
) -> Fit:
    """Go on with a fit from its last checkpoint, to the same end, bit for bit, that it would have had.

    Checkpoints hold no code and no data, so the model and the data are passed again; everything else is as it was.
    A model, data or option that differs from the run's is refused, with the difference named.

    Args:
        checkpoint: the folder that was given to :func:`isvi.fit`.
        model: the same model.
        data: the same data.
        family, algorithm, estimator: only if they were of a kind of your own.
        optimizer: only if one was given to ``fit``, and then the same.
        progress, callbacks, workers, devices: as for ``fit``.
    """
    folder = Path(checkpoint.folder if isinstance(checkpoint, Checkpoint) else checkpoint)
    identity = read_identity(folder)
    given: dict[str, Any] = {"family": family, "algorithm": algorithm, "estimator": estimator}
    try:
        recorded = restored(identity["options"], [field.name for field in fields(Options)], given)
    except CheckpointError as error:
        raise CheckpointError(f"{folder} cannot be resumed: {error}") from None
    making = _making(workers, devices, model, data)
    setup = prepare(model, data, Options(**recorded), optimizer, devices=devices)
    found = differences(identity, _identity(setup))
    require(
        not found,
        CheckpointError,
        f"{folder} is of another run, and this one cannot go on from it: {'; '.join(found)}.",
    )
    with _checkpoints(checkpoint, setup) as checkpoints:
        start = setup.start()
        outcome, seen = checkpoints.restore(
            lambda notes: template(setup, start, notes),
            lambda state, notes: (Outcome.of(state, notes), {str(name): str(sum) for name, sum in notes[SEEN].items()}),
        )
        setup.dataset.expect(seen)
        log.info("going on from %s after %s model gradients", folder, f"{outcome.gradients:,}")
        report = reporters(progress, setup.budget_of_method, callbacks)
        return _finished(setup, run(setup, outcome, report, making, checkpoints), report, checkpoints)


def _making(workers: Any, devices: Devices | None, model: Model | Bindable, data: Any) -> Making:
    require(
        workers is None or devices is None,
        ConfigurationError,
        "workers and devices cannot go together: devices are of this process, and workers are others.",
    )
    return Making(chosen_workers(workers), model, data)


def _checkpoints(checkpoint: str | Path | Checkpoint, setup: Setup) -> Checkpoints:
    where = checkpoint if isinstance(checkpoint, Checkpoint) else Checkpoint(checkpoint)
    return Checkpoints(where, lambda: {SEEN: setup.dataset.seen})


def _finished(setup: Setup, outcome: Outcome, report: Reporters, checkpoints: Checkpoints | None = None) -> Fit:
    """The result; or the error that ended the run, with the result attached."""
    setup = setup.with_nodes(outcome.nodes)
    params = outcome.loop.state.params
    if outcome.fell_back_at is None:
        own = setup.own(params, outcome.loop.state.memory)
    else:
        own = setup.own(params) if setup.many else params
    if outcome.status.good:
        outcome.status = endless(setup.approximation, own) or outcome.status
    if setup.options.independent_rows is False:
        outcome.status = outcome.status.adding(DEPENDENT_ROWS)
    fit = _bent(setup, outcome, _fit(setup, outcome, own))
    if outcome.fell_back_at is not None and outcome.error is None:
        fit = _no_worse(fit, _fit(setup, outcome, setup.own(outcome.start)))
    if checkpoints is not None:
        checkpoints.guarded(lambda: fit.save(checkpoints.run_folder / "fit.isvi"), "the fit")
    report.end(fit)
    if checkpoints is not None and outcome.signal == signal.SIGTERM and checkpoints.options.sigterm == "end":
        signal.raise_signal(signal.SIGTERM)  # all is saved: now it ends the process, as it does without isvi
    if outcome.error is not None:  # the model or the data raised: so does fit, and what there is goes with it
        outcome.error.fit = fit  # type: ignore[attr-defined]
        raise outcome.error
    if not outcome.status.good or outcome.status.message.startswith(NOT_CONVERGED):
        log.warning("%s", outcome.status)
    return fit


def _fit(setup: Setup, outcome: Outcome, params: Params) -> Fit:
    """What a run came to, with its parameters as the approximation's."""
    state = outcome.loop.state
    return Fit(
        setup.model,
        setup.approximation,
        setup.dataset,
        params,
        outcome.history,
        outcome.status,
        gradients=int(state.gradients),
        steps=int(state.steps),
        skipped=outcome.skipped,
        seconds=outcome.seconds,
        compile_seconds=outcome.compile_seconds,
        starts=tuple(outcome.starts),
        settings=_settings(setup),
    )


def _bent(setup: Setup, outcome: Outcome, fit: Fit) -> Fit:
    """With what came of bending the Gaussian, if that was tried and it did not grow without end."""
    bent = outcome.bent
    if bent is None:
        return fit
    fit = replace(fit, gradients=fit.gradients + bent.gradients)
    if bent.approximation is None or not outcome.status.good:
        return fit
    return replace(fit, approximation=bent.approximation, params=bent.params)


def _settings(setup: Setup) -> dict[str, Any]:
    """The choices as text and numbers, for people."""
    chosen = {
        name: value if isinstance(value, (int, float, str)) else str(value)
        for name, value in vars(setup.options).items()
        if value is not None
    }
    return chosen if setup.optimizer is None else {**chosen, "optimizer": "the user's"}


def _no_worse(fit: Fit, before: Fit) -> Fit:
    """What another method came to; or what there was before it, if that has the better ELBO."""
    after, known = (one.elbo(DRAWS_TO_COMPARE).value for one in (fit, before))
    if after >= known or not np.isfinite(known):
        return fit
    status = fit.status.adding("it ended no better than it began, and what there was before it is kept")
    return replace(before, status=status if fit.status.good else replace(status, kind="budget"))


def _identity(setup: Setup) -> dict[str, Any]:
    coordinates = setup.approximation.coordinates
    return identify(vars(setup.options), setup.optimizer is None, setup.model, setup.dataset, coordinates, setup.trial)
