"""NumPyro models: an ordinary model function, found out about by tracing it.

Rules, in short. Latents are the unobserved sample sites. An observed site (also ``numpyro.factor``) that depends
on the mini-batch, through its rows or through their number, is likelihood and is scaled to all rows; any other
observed site, such as a soft constraint, belongs to the prior and is counted once. Scales that plates would add
for subsampling are taken out again, since the library scales.
"""

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from inspect import Parameter, signature
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from numpyro import handlers
from numpyro.distributions import Unit, biject_to
from numpyro.infer import Predictive
from numpyro.infer.initialization import init_to_uniform
from numpyro.primitives import Messenger

from isvi.core.errors import ConfigurationError, ModelError, require
from isvi.core.latents import Latent, real
from isvi.data.arrays import checked_arrays
from isvi.data.opening import DEFAULT_BATCH_SIZE
from isvi.data.source import Source
from isvi.frontends.numpyro_rows import ArrayRows, NoRows, PlateRows, SourceRows
from isvi.model.binding import Bound
from isvi.model.model import Model

UNCONSTRAINED = "_unconstrained"
"""Ends the name of a latent whose support moves with other latents, so that only its unconstrained value has a
fixed space: ``x ~ Uniform(0, y)`` becomes the latent ``x_unconstrained``; results show both."""

Site = dict[str, Any]


def from_numpyro(model: Callable, *args: Any, **kwargs: Any) -> "NumpyroModel":
    """A NumPyro model function as a model for :func:`isvi.fit`.

    Args:
        model: the model function. :func:`isvi.fit` calls it with the rows of a mini-batch: the columns of a dict
            (or DataFrame) as keyword arguments, a tuple's arrays as further positional ones.
        *args, **kwargs: arguments that are not per row and are always passed, such as the number of groups. If
            *all* arguments are given here, fit without data: every evaluation uses all rows, except in a plate
            with ``subsample_size``, whose rows become the mini-batches.

    >>> import isvi, numpyro, numpyro.distributions as dist
    >>> def coin(heads=None):
    ...     bias = numpyro.sample("bias", dist.Beta(2, 2))
    ...     numpyro.sample("heads", dist.Bernoulli(bias), obs=heads)
    >>> model = isvi.from_numpyro(coin)  # isvi.fit(model, {"heads": [1, 0, 1]})
    """
    require(callable(model), ConfigurationError, f"from_numpyro needs a model function; got {model!r}.")
    # As JAX arrays: NumPy ones would be read in another precision whenever the precision is switched.
    args, kwargs = jax.tree.map(
        lambda leaf: jnp.asarray(leaf) if isinstance(leaf, np.ndarray) else leaf, (args, kwargs)
    )
    return NumpyroModel(model, args, kwargs)


@dataclass(frozen=True)
class NumpyroModel:
    """A NumPyro model that waits for its data; :func:`isvi.fit` binds it.

    Attributes:
        function: the model function.
        args, kwargs: the arguments that are always passed.
    """

    function: Callable
    args: tuple
    kwargs: Mapping[str, Any]

    def bind(self, data: Any = None, batch_size: int | None = None) -> Bound:
        """Trace the model with its data; the result holds an :class:`isvi.Model`."""
        if isinstance(data, Source):
            batch_size = min(data.num_rows, DEFAULT_BATCH_SIZE) if batch_size is None else batch_size
            return _bind_rows(self, SourceRows(data, data.head(batch_size)), batch_size)
        if data is not None:
            arrays, size = checked_arrays(data)
            return _bind_rows(self, ArrayRows(arrays, size), batch_size)
        plates = _subsampled_plates(_first_trace(self.function, self.args, self.kwargs))
        require(
            len(plates) <= 1,
            ModelError,
            f"isvi makes mini-batches of one plate; several have a subsample_size: {sorted(plates)}. Remove it from "
            "all but one.",
        )
        if plates:
            ((name, (size, subsample_size)),) = plates.items()
            return _bind_rows(self, PlateRows(name, size), batch_size or subsample_size)
        traced = TracedModel(self, NoRows(), 1)
        return Bound(traced.model(frozenset()), None, batch_size)


@dataclass(frozen=True)
class TracedModel:
    """A model function together with its rows: the densities that an :class:`isvi.Model` needs.

    Attributes:
        source: the function and the arguments that are always passed.
        rows: where mini-batches come from.
        num_rows: how many rows the function is traced with when no particular ones are meant.
    """

    source: NumpyroModel
    rows: ArrayRows | SourceRows | PlateRows | NoRows
    num_rows: int

    def trace(self, rows: Any, *places: Messenger) -> dict[str, Site]:
        """The sites of one run on some rows. ``places`` put values at the latent sites."""
        more, named = self.rows.arguments(rows)
        with ExitStack() as stack:
            sites = stack.enter_context(handlers.trace())
            # The seed comes last: what places values may ask it for keys.
            for handler in (self.rows.plates(rows), *places, handlers.seed(rng_seed=0)):
                stack.enter_context(handler)
            self.source.function(*self.source.args, *more, **{**self.source.kwargs, **named})
        return sites

    def template(self, num_rows: int | None = None) -> Any:
        """Some rows, where only their number matters."""
        length = self.num_rows if num_rows is None else num_rows
        return jax.tree.map(lambda column: jnp.asarray(column[:length]), self.rows.data)

    @cached_property
    def sites(self) -> dict[str, Site]:
        """The sites of a run with all latents at the image of 0."""
        return self.trace(self.template(), handlers.substitute(substitute_fn=init_to_uniform(radius=0)))

    @cached_property
    def moving(self) -> frozenset[str]:
        """Latent sites whose support depends on other latents."""
        elsewhere = self.trace(self.template(), handlers.substitute(substitute_fn=init_to_uniform(radius=1)))
        return frozenset(
            name
            for name, site in self.sites.items()
            if _is_latent(site) and not _same(site["fn"].support, elsewhere[name]["fn"].support)
        )

    @cached_property
    def latents(self) -> dict[str, Latent]:
        """The latent sites, in the model's order."""
        latents = {}
        for name, site in self.sites.items():
            if site["type"] == "param":
                raise ModelError(
                    f"numpyro.param({name!r}) asks for an optimum, not a posterior. Give it a prior with "
                    "numpyro.sample, or pass its value as a constant."
                )
            if not _is_latent(site):
                continue
            support, shape = site["fn"].support, jnp.shape(site["value"])
            require(
                not support.is_discrete,
                ModelError,
                f"The latent site {name!r} is discrete ({type(site['fn']).__name__}). Sum it out: a mixture is "
                "numpyro.distributions.MixtureSameFamily or MixtureGeneral; otherwise use logsumexp over its values in "
                "numpyro.factor.",
            )
            try:
                transform = biject_to(support)
            except NotImplementedError:
                raise ModelError(f"numpyro knows no bijection onto the support of {name!r}, {support}.") from None
            if name in self.moving:
                latents[name + UNCONSTRAINED] = real(*transform.inverse_shape(shape), flat_prior=True)
            else:
                # The site states its prior itself, also where that is flat.
                latents[name] = Latent(tuple(shape), support, transform, flat_prior=True)
        require(len(latents) > 0, ModelError, "The NumPyro model has no latent sites: nothing to fit.")
        return latents

    def terms(self, values: dict[str, Array], rows: Any) -> tuple[dict[str, Array], dict[str, Array]]:
        """The log density of every sample site, entry by entry, and the values of all that is reported."""
        jacobians: dict[str, Array] = {}

        def place_unconstrained(site: Site) -> Array | None:
            given = values.get(site["name"] + UNCONSTRAINED) if _is_latent(site) else None
            if given is None:
                return None
            transform = biject_to(site["fn"].support)
            value = transform(given)
            jacobians[site["name"]] = transform.log_abs_det_jacobian(given, value)
            return value

        places = [handlers.substitute(data=values)]
        if self.moving:
            places.append(handlers.substitute(substitute_fn=place_unconstrained))
        sites = self.trace(rows, *places)
        terms, reported = {}, {}
        for name, site in sites.items():
            if site["type"] == "sample":
                term = site["fn"].log_prob(site["value"])
                terms[name] = term if site["scale"] is None else site["scale"] * term
                if name in jacobians:
                    terms[name] = jnp.sum(terms[name]) + jnp.sum(jacobians[name])
            if site["type"] == "deterministic" or name in jacobians:
                reported[name] = site["value"]
        return terms, reported

    def model(self, likelihood: frozenset[str]) -> Model:
        """The :class:`isvi.Model`, with the given observed sites as its likelihood."""

        def log_prior(values: dict[str, Array]) -> Array:
            terms, _ = self.terms(values, self.template())
            return sum((jnp.sum(term) for name, term in terms.items() if name not in likelihood), jnp.zeros(()))

        def log_likelihood(values: dict[str, Array], rows: Any) -> Array:
            terms, _ = self.terms(values, rows)
            return sum((jnp.sum(terms[name]) for name in likelihood), jnp.zeros(()))

        return Model(
            self.latents,
            log_prior,
            None if isinstance(self.rows, NoRows) else log_likelihood,
            report=self.report if self._reported else None,
            predict=self.predict,
        )

    @cached_property
    def _reported(self) -> frozenset[str]:
        """Sites shown beside the latents: deterministic ones that are not per row, and moving latents."""
        sites = self.sites
        names = {name for name, site in sites.items() if site["type"] == "deterministic"}
        if isinstance(self.rows, NoRows):
            return frozenset(names) | self.moving
        _, per_row = _depending_on_rows(self)
        return frozenset(names - per_row) | self.moving

    def report(self, draws: dict[str, Array]) -> dict[str, np.ndarray]:
        """Draws of the latents, with what the model computes from them."""
        shown = self._reported

        @jax.jit
        def computed(draws: dict[str, Array]) -> dict[str, Array]:
            def one(values: dict[str, Array]) -> dict[str, Array]:
                _, reported = self.terms(values, self.template())
                return {name: reported[name] for name in self.sites if name in shown}

            return jax.vmap(one)(draws)

        return {**draws, **jax.device_get(computed(draws))}

    def predict(self, draws: dict[str, Array], data: Any, seed: int) -> dict[str, np.ndarray]:
        """Posterior predictive draws of all observed sites, and of deterministic ones, by numpyro's Predictive."""
        posterior = {**draws, **(self.report(draws) if self.moving else {})}
        posterior = {name: posterior[name] for name, site in self.sites.items() if _is_latent(site)}
        rows, source = self._rows_to_predict(data), self.source

        def simulated(*args: Any, **kwargs: Any) -> Any:
            more, named = self.rows.arguments(rows)
            with self.rows.plates(rows):
                return source.function(*args, *more, **{**kwargs, **named, **self._left_out(named)})

        model = handlers.uncondition(simulated)
        simulate = Predictive(model, posterior_samples=posterior)
        found = simulate(jax.random.key(seed), *source.args, **source.kwargs)
        return {name: np.asarray(value) for name, value in found.items() if np.size(value) > 0}

    def _rows_to_predict(self, data: Any) -> Any:
        if data is None:
            require(
                not isinstance(self.rows, SourceRows),
                ConfigurationError,
                "The rows that were fitted do not fit in memory: say for which rows to predict, fit.predict(rows).",
            )
            return jax.tree.map(jnp.asarray, self.rows.data)
        require(
            isinstance(self.rows, (ArrayRows, SourceRows)),
            ConfigurationError,
            "New rows can be predicted where the data were passed to isvi.fit. Here they were bound to the model: "
            "build it again with isvi.from_numpyro(model) and fit with isvi.fit(model, data).",
        )
        return jax.tree.map(jnp.asarray, checked_arrays(data)[0])

    def _left_out(self, named: Mapping[str, Any]) -> dict[str, None]:
        """Columns that were fitted but are not among the new rows, such as the outcome: passed as None."""
        passed = isinstance(self.rows, (ArrayRows, SourceRows))
        fitted = self.rows.data if isinstance(self.rows.data, dict) and passed else {}
        parameters = signature(self.source.function).parameters
        required = {name for name, parameter in parameters.items() if parameter.default is Parameter.empty}
        return dict.fromkeys((set(fitted) - set(named)) & required)


def _bind_rows(source: NumpyroModel, rows: ArrayRows | SourceRows | PlateRows, batch_size: int | None) -> Bound:
    """Decide what is likelihood, and refuse what cannot be cut into mini-batches."""
    _check_arguments(source, rows)
    size = rows.size
    whole = TracedModel(source, rows, min(size, batch_size or size))
    cuttable = size > 1
    likelihood, per_row = _depending_on_rows(whole) if cuttable else (_observed(whole), set())
    local = sorted(per_row & {name for name, site in whole.sites.items() if _is_latent(site)})
    if local:
        everything = "as arrays, and batch_size=None" if isinstance(rows, SourceRows) else "batch_size=None"
        require(
            batch_size is None or batch_size >= size,
            ModelError,
            f"The latent site {local[0]!r} depends on the rows of the mini-batch: it has an entry per row, or a prior "
            f"computed from the data. Use all rows at once ({everything}), sum it out, or compute what its prior "
            "needs beforehand and bind it: isvi.from_numpyro(model, scale=x.std()).",
        )
        batch_size = size
        whole = TracedModel(source, rows, size)
    require(
        len(likelihood) > 0,
        ModelError,
        "No observed site of the NumPyro model depends on the data. Pass the observations as obs=..., and the data "
        "under the names of the model's arguments.",
    )
    data = rows.source if isinstance(rows, SourceRows) else rows.data
    return Bound(whole.model(frozenset(likelihood)), data, batch_size)


def _check_arguments(source: NumpyroModel, rows: ArrayRows | SourceRows | PlateRows) -> None:
    """The data must be what the model function takes."""
    args, kwargs = ((), {}) if isinstance(rows, PlateRows) else rows.arguments(rows.data)
    try:
        signature(source.function).bind(*source.args, *args, **source.kwargs, **kwargs)
    except TypeError as error:
        given = f"columns {', '.join(map(str, kwargs))}" if kwargs else f"{len(args)} array(s)"
        name = getattr(source.function, "__name__", "model")
        raise ModelError(
            f"The NumPyro model cannot be called with the data: {error}. It is {name}{signature(source.function)}, and "
            f"the data has {given}. Rename or leave out columns, or bind what is not per row: "
            "isvi.from_numpyro(model, groups=8)."
        ) from None


def _depending_on_rows(traced: TracedModel) -> tuple[set[str], set[str]]:
    """Observed sites, and other sites, that depend on the rows: on their values or on their number."""
    dtype = jnp.result_type(float)

    def shapes(num_rows: int) -> tuple[set[str], dict[str, Any]]:
        rows = traced.template(num_rows)
        found = TracedModel(traced.source, traced.rows, num_rows)
        values = {name: jax.ShapeDtypeStruct(latent.shape, dtype) for name, latent in found.latents.items()}
        out: dict[str, Any] = {}

        def run(values: dict[str, Array], rows: Any) -> dict[str, Array]:
            terms, reported = found.terms(values, rows)
            both = {**terms, **{f"deterministic {name}": value for name, value in reported.items()}}
            out.update({name: jnp.shape(value) for name, value in both.items()})
            return both

        jaxpr = jax.make_jaxpr(run)(values, rows).jaxpr
        names = sorted(out)  # dicts are flattened in the order of their sorted keys
        tainted = _reached_from(jaxpr, jaxpr.invars[len(values) :])
        return {name for name, var in zip(names, jaxpr.outvars, strict=True) if var in tainted}, out

    depends, here = shapes(traced.num_rows)
    _, elsewhere = shapes(traced.num_rows - 1 if traced.num_rows > 1 else 2)
    depends |= {name for name in here if here[name] != elsewhere.get(name)}
    observed = _observed(traced)
    return depends & observed, {name.removeprefix("deterministic ") for name in depends - observed}


def _reached_from(jaxpr: Any, start: list) -> set:
    """Variables of a jaxpr that any of the given ones can influence."""
    reached = set(start)
    for equation in jaxpr.eqns:
        if any(not hasattr(var, "val") and var in reached for var in equation.invars):
            reached.update(equation.outvars)
    return _Vars(reached)


class _Vars(set):
    """A set of variables in which literals, which cannot be hashed, are never found."""

    def __contains__(self, var: object) -> bool:
        return not hasattr(var, "val") and super().__contains__(var)


def _observed(traced: TracedModel) -> set[str]:
    return {name for name, site in traced.sites.items() if site["type"] == "sample" and site["is_observed"]}


def _is_latent(site: Site) -> bool:
    return site["type"] == "sample" and not site["is_observed"] and not isinstance(site["fn"], Unit)


def _same(one: Any, other: Any) -> bool:
    """Whether two supports are equal, bounds included."""
    ours, theirs = jax.tree.leaves(one), jax.tree.leaves(other)
    return len(ours) == len(theirs) and all(np.array_equal(a, b) for a, b in zip(ours, theirs, strict=True))


def _first_trace(function: Callable, args: tuple, kwargs: Mapping[str, Any]) -> dict[str, Site]:
    """The plates of a model whose data are bound: seen without drawing their indices."""
    place = handlers.substitute(substitute_fn=init_to_uniform(radius=0))
    with handlers.trace() as sites, _FirstIndices(), place, handlers.seed(rng_seed=0):
        function(*args, **kwargs)
    return sites


class _FirstIndices(Messenger):
    """Subsampled plates take their first indices."""

    def process_message(self, msg: Site) -> None:
        if msg["type"] == "plate" and msg["value"] is None:
            msg["value"] = jnp.arange(msg["args"][1])


def _subsampled_plates(sites: dict[str, Site]) -> dict[str, tuple[int, int]]:
    plates = {name: site["args"] for name, site in sites.items() if site["type"] == "plate"}
    return {name: (size, part) for name, (size, part) in plates.items() if part is not None and part != size}
