"""Models that JAX cannot trace: a Python callable that gives a log density and its gradient.

The callable is spoken to from the host, once per record, with NumPy arrays in double precision. What is known in
JAX stays in JAX: the constraints with their Jacobians, and a log prior if one was given.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpyro.distributions.transforms import IdentityTransform

from isvi.core.errors import ConfigurationError, DataError, ModelError, require
from isvi.data.dataset import Batch, Dataset
from isvi.data.opening import Data
from isvi.data.source import Source
from isvi.model.model import Model
from isvi.model.target import Target

ROW = "isvi row"
"""The one column of the data set that mini-batches of an external model are made of: the rows' numbers."""


@dataclass
class CallCount:
    """How often the callable was called, and at how many draws it was evaluated."""

    calls: int = 0
    draws: int = 0


@dataclass(frozen=True)
class External:
    """The user's callable, made uniform: named values with a leading axis over draws in, the same out.

    Attributes:
        function: ``function(z)``, or ``function(z, rows)`` when there are rows, gives a value and a gradient.
        flat: the name of the only latent if the callable takes and gives one vector; None for dicts.
        vectorized: the callable takes all draws at once, with a leading axis.
        rows: the user's data as they came, which never pass through JAX, so that nothing is cast; or None, if
            there are none, or if they come from a source, in JAX's precision.
        door: the function of isvi that the user called, for messages.
    """

    function: Callable[..., tuple[Any, Any]]
    flat: str | None = None
    vectorized: bool = False
    rows: Any = None
    door: str = "isvi.from_gradient"
    count: CallCount = field(default_factory=CallCount, compare=False)

    def __call__(self, values: Mapping[str, Any], index: Any = None) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Log densities ``(draws,)`` and gradients ``(draws, ...)`` by name, in double precision."""
        points = {name: np.array(value, np.float64) for name, value in values.items()}
        rows = () if index is None else (self._pick(index),)
        num_draws = len(next(iter(points.values())))
        self.count.draws += num_draws
        if self.vectorized:
            self.count.calls += 1
            return self._checked(self.function(self._given(points), *rows), points)
        answers = []
        for m in range(num_draws):
            point = {name: value[m] for name, value in points.items()}
            self.count.calls += 1
            answers.append(self._checked(self.function(self._given(point), *rows), point))
        gradients = {name: np.stack([gradient[name] for _, gradient in answers]) for name in points}
        return np.stack([value for value, _ in answers]), gradients

    def _pick(self, index: Any) -> Any:
        if self.rows is None:  # the rows themselves, from a source
            return jax.tree.map(np.asarray, index)
        return jax.tree.map(lambda column: column[np.asarray(index)], self.rows)

    def _given(self, point: dict[str, np.ndarray]) -> Any:
        return point if self.flat is None else point[self.flat]

    def _checked(self, answer: Any, point: dict[str, np.ndarray]) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """The answer as arrays of the right shape, or an error that says what was expected and what came."""
        require(
            isinstance(answer, (tuple, list)) and len(answer) == 2,
            ModelError,
            f"The function given to {self.door} must return (log density, gradient); it returned "
            f"{type(answer).__name__}.",
        )
        value, gradient = answer
        gradients = gradient if self.flat is None else {self.flat: gradient}
        require(
            isinstance(gradients, Mapping) and sorted(gradients) == sorted(point),
            ModelError,
            f"The gradient returned to {self.door} must be a dict with one entry per latent, {sorted(point)}; got "
            + (str(sorted(gradients)) if isinstance(gradients, Mapping) else type(gradients).__name__)
            + ".",
        )
        arrays = {name: np.asarray(gradients[name], np.float64) for name in point}
        for name, array in arrays.items():
            require(
                array.shape == point[name].shape,
                ModelError,
                f"The gradient in {name!r} must have the shape of its value, {point[name].shape}; got {array.shape}.",
            )
        number = np.asarray(value, np.float64)
        expected = next(iter(point.values())).shape[:1] if self.vectorized else ()
        if number.size == 1 and expected == ():
            number = number.reshape(())
        require(
            number.shape == expected,
            ModelError,
            f"The log density must be {'one number per draw' if self.vectorized else 'a single number'}, shape "
            f"{expected}; got shape {number.shape}.",
        )
        return number, arrays


def no_log_prior(values: dict[str, Array]) -> Array:
    """For callables whose density holds everything."""
    return jnp.zeros(())


@dataclass(frozen=True)
class ExternalModel(Model):
    """A model whose likelihood (or whole density) is evaluated outside JAX.

    ``log_prior`` is a JAX function as in any model; by default the external density holds everything.
    """

    external: External = field(kw_only=True)

    def with_rows(self, data: Any) -> tuple["ExternalModel", Any]:
        """This model with the user's data at hand, and what to cut into mini-batches: the rows' numbers, or the
        rows themselves if they come from a source."""
        if data is None:
            return self, None
        require(
            self.log_prior is not no_log_prior,
            ConfigurationError,
            f"With data, the function given to {self.external.door} is called as value_and_grad(z, rows) and gives "
            "the log likelihood of these rows, which is then scaled to all of them. Give the prior apart, in JAX: "
            "log_prior=lambda z: ...",
        )
        if isinstance(data, Source):
            return self, data
        if hasattr(data, "columns") and hasattr(data, "to_numpy"):
            data = {str(column): data[column] for column in data.columns}
        rows = jax.tree.map(np.asarray, data, is_leaf=lambda leaf: not isinstance(leaf, (dict, tuple)))
        lengths = {np.shape(column)[:1] for column in jax.tree.leaves(rows)}
        require(
            len(lengths) == 1 and lengths not in ({()}, {(0,)}),
            DataError,
            "All arrays must have the same number of rows, at least one (the first axis); got shapes "
            f"{[np.shape(column) for column in jax.tree.leaves(rows)]}.",
        )
        ((size,),) = lengths
        return replace(self, external=replace(self.external, rows=rows)), {ROW: np.arange(size, dtype=np.int32)}


@dataclass(frozen=True)
class ExternalTarget(Target):
    """The log joint of an external model.

    Called with numbers, its methods evaluate the callable on the host, and everything around it in double
    precision. Called while JAX traces, they put a callback into the compiled code, which gives the same numbers
    more slowly: the loop (:mod:`isvi.fitting.host_loop`) never does that.
    """

    model: ExternalModel

    on_host: ClassVar[bool] = True

    def log_likelihood(self, z: Float[Array, " dim"], rows: Any) -> Float[Array, ""]:
        values, _ = self.coordinates.decode(z)
        return self._called_back(values, rows).astype(z.dtype)

    @cached_property
    def _bare(self) -> bool:
        """Whether JAX has nothing to add: no constraints, and no prior."""
        entries = self.coordinates.entries
        return self.model.log_prior is no_log_prior and all(
            isinstance(entry.latent.transform, IdentityTransform) for entry in entries
        )

    def exact_values(self, draws: Float[Array, "draws dim"], dataset: Dataset) -> Float[Array, " draws"]:
        if _traced(draws):
            known = super().exact_values(draws, dataset)
            # Without data the callable is the whole density, and no rows will bring it in.
            return known if dataset.full is not None else known + jax.vmap(self.log_likelihood, (0, None))(draws, None)
        return self.whole_values(draws, dataset)

    def whole_values(self, draws: Float[Array, "draws dim"], data: Data) -> Float[Array, " draws"]:
        values = self._decode(draws)
        total = np.zeros(len(draws))
        for part in data.parts():
            for rows in _all_host_rows(part):
                total += self.model.external(values, rows)[0]
        return self._complete(draws, total, _zeros_like(values), 1.0)[0]

    def values(self, draws: Float[Array, "draws dim"], batch: Batch) -> Float[Array, " draws"]:
        return self.values_and_gradients(draws, batch)[0]

    def values_and_gradients(
        self, draws: Float[Array, "draws dim"], batch: Batch
    ) -> tuple[Float[Array, " draws"], Float[Array, "draws dim"]]:
        if _traced(draws) or _traced(batch.index):
            return super().values_and_gradients(draws, batch)
        rows = _host_rows(batch)
        likelihoods, pulls = self.model.external(self._decode(draws), rows)
        return self._complete(draws, likelihoods, pulls, batch.scale)

    def _decode(self, draws: Array) -> dict[str, np.ndarray]:
        """Constrained values of the draws, on the host and in double precision, in the model's order."""
        if self._bare:
            z = np.asarray(draws, np.float64)
            values = {e.name: z[:, e.start : e.stop].reshape(-1, *e.shape) for e in self.coordinates.entries}
        else:
            with jax.enable_x64(True):
                values = jax.device_get(self._decoded(draws))
        return {name: values[name] for name in self.model.latents}

    def _complete(
        self, draws: Array, likelihoods: np.ndarray, pulls: dict[str, np.ndarray], scale: float
    ) -> tuple[Array, Array]:
        """The log joint and its gradient in z from what the callable said."""
        if self._bare:
            flat = [pulls[entry.name].reshape(len(draws), -1) for entry in self.coordinates.entries]
            gradients = scale * np.concatenate(flat, axis=1)
            return jnp.asarray(scale * likelihoods, draws.dtype), jnp.asarray(gradients, draws.dtype)
        with jax.enable_x64(True):
            return self._completed(draws, likelihoods, pulls, scale)

    @cached_property
    def _decoded(self) -> Callable[[Array], dict[str, Array]]:
        return jax.jit(lambda draws: self.coordinates.constrain(draws.astype(jnp.float64)))

    @cached_property
    def _completed(self) -> Callable[..., tuple[Array, Array]]:
        """What JAX knows, added to what the callable said: prior, Jacobians, and the way back through them."""

        def one(z: Array, likelihood: Array, pull: dict[str, Array], scale: Array) -> tuple[Array, Array]:
            def known_and_carried(z: Array) -> tuple[Array, Array]:
                values, log_jacobian = self.coordinates.decode(z)
                known = self.model.log_prior(values) + log_jacobian
                carried = sum(jnp.sum(pull[name] * value) for name, value in values.items())
                return known + scale * carried, known

            (_, known), gradient = jax.value_and_grad(known_and_carried, has_aux=True)(z)
            return known + scale * likelihood, gradient

        def completed(draws: Array, likelihoods: Array, pulls: dict, scale: Array) -> tuple[Array, Array]:
            values, gradients = jax.vmap(one, (0, 0, 0, None))(draws.astype(jnp.float64), likelihoods, pulls, scale)
            return values.astype(draws.dtype), gradients.astype(draws.dtype)

        return jax.jit(completed)

    @cached_property
    def _called_back(self) -> Callable[[dict[str, Array], Any], Array]:
        """The log likelihood of some rows as a JAX function with a derivative, by calling back to the host."""
        external = self.model.external

        def call(values: dict[str, Array], rows: Any) -> tuple[Array, dict[str, Array]]:
            dtype = jnp.result_type(*values.values())

            def on_host(values: dict[str, Any], rows: Any) -> tuple[np.ndarray, dict[str, np.ndarray]]:
                one = {name: np.asarray(value)[None] for name, value in values.items()}
                number, gradients = external(one, rows[ROW] if isinstance(rows, dict) and ROW in rows else rows)
                return number[0].astype(dtype), {name: array[0].astype(dtype) for name, array in gradients.items()}

            shapes = (
                jax.ShapeDtypeStruct((), dtype),
                jax.tree.map(lambda v: jax.ShapeDtypeStruct(v.shape, dtype), values),
            )
            return jax.pure_callback(on_host, shapes, values, rows, vmap_method="sequential")

        @jax.custom_vjp
        def likelihood(values: dict[str, Array], rows: Any) -> Array:
            return call(values, rows)[0]

        likelihood.defvjp(call, lambda gradients, by: (jax.tree.map(lambda one: by * one, gradients), None))
        return likelihood


def _traced(value: Any) -> bool:
    return isinstance(value, jax.core.Tracer)


def _host_rows(batch: Batch) -> Any:
    """The numbers of a mini-batch's rows; or the rows themselves, if they come from a source."""
    data, index = batch.dataset, int(batch.index)
    if data.rest is not None and index == data.num_batches - 1:
        return _numbers(data.rest)
    place = index if data.offset is None else index - int(data.offset)
    return _numbers(jax.tree.map(lambda column: column[place], data.full))


def _all_host_rows(data: Dataset) -> Iterator[Any]:
    """What :func:`_host_rows` gives, for all mini-batches that are in memory."""
    if data.full is None:
        yield None
        return
    for place in range(len(jax.tree.leaves(data.full)[0])):
        yield _numbers(jax.tree.map(lambda column, at=place: column[at], data.full))
    if data.rest is not None:
        yield _numbers(data.rest)


def _numbers(rows: Any) -> Any:
    return np.asarray(rows[ROW]) if isinstance(rows, dict) and ROW in rows else rows


def _zeros_like(values: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name: np.zeros_like(value) for name, value in values.items()}


def check_external_start(target: ExternalTarget, dataset: Dataset, draws: Float[Array, "draws dim"]) -> None:
    """Evaluate the callable once, at a draw from the initial approximation; everything must be finite."""
    door = target.model.external.door
    try:
        values, gradients = jax.device_get(target.values_and_gradients(draws[:1], dataset.batch(0)))
    except ModelError:
        raise
    except Exception as error:
        error.add_note(f"(raised by the function given to {door}, called once before fitting)")
        raise
    bad = [target.coordinates.labels()[entry] for entry in np.flatnonzero(~np.isfinite(gradients[0]))]
    require(
        bool(np.isfinite(values).all()) and not bad,
        ModelError,
        f"The function given to {door} gave "
        + (f"a gradient that is not finite in {', '.join(bad[:3])}" if bad else f"the log density {values[0]}")
        + " at a draw from the initial approximation. Check it there, or start elsewhere: "
        "isvi.fit(..., initial={...}, initial_scale=...).",
    )
