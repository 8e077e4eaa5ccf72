"""PyMC models, through PyTensor's export to JAX.

The model's random variables keep their names and their transforms: Gaussian approximations live in the same
unconstrained space in which PyMC would sample. ``pm.Data`` containers with one entry per observed row are what
mini-batches are cut from.
"""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from numpyro.distributions import constraints
from numpyro.distributions.transforms import Transform

from isvi.core.errors import ConfigurationError, ModelError, require
from isvi.core.extras import import_extra
from isvi.core.latents import Latent, real
from isvi.model.binding import Bound
from isvi.model.model import Model

SUPPORTS = {
    "LogTransform": constraints.positive,
    "LogExpM1": constraints.positive,
    "LogOddsTransform": constraints.unit_interval,
    "SimplexTransform": constraints.simplex,
    "Ordered": constraints.ordered_vector,
}
"""What PyMC's transforms map onto, where families other than Gaussians may ask."""


def from_pymc(model: Any, data: Sequence[str] | None = None) -> "PymcModel":
    """A PyMC model as a model for :func:`isvi.fit`. Needs the extra ``isvi[pymc]``.

    Args:
        model: a ``pm.Model``. Its ``pm.Data`` containers are the data: fit with ``isvi.fit(isvi.from_pymc(model))``.
        data: names of the containers to cut into mini-batches; by default those with as many rows as the observed
            variables. Observations that are not in a container are used all at once.
    """
    import_extra("pymc", "pymc", "isvi.from_pymc")
    require(
        hasattr(model, "free_RVs") and hasattr(model, "rvs_to_values"),
        ConfigurationError,
        f"from_pymc needs a pm.Model; got {type(model).__name__}.",
    )
    return PymcModel(model, None if data is None else tuple(data))


@dataclass(frozen=True)
class PymcModel:
    """A PyMC model; :func:`isvi.fit` binds it to the data in its containers.

    Attributes:
        source: the ``pm.Model``, which stays as it is.
        containers: names of the containers to cut into mini-batches, or None for the default.
    """

    source: Any
    containers: tuple[str, ...] | None

    def bind(self, data: Any = None, batch_size: int | None = None) -> Bound:
        """Export the model to JAX; the result holds an :class:`isvi.Model`."""
        require(
            data is None,
            ConfigurationError,
            "A PyMC model has its data in pm.Data containers: set them with pm.set_data, and call isvi.fit(model) "
            "without data.",
        )
        export = Export(self.source, frozenset(self._row_containers()))
        rows = {name: np.asarray(self.source[name].get_value()) for name in sorted(export.containers)}
        if not rows or not export.likelihood:
            require(
                batch_size is None,
                ConfigurationError,
                "batch_size was given, but no observed variable of the PyMC model has its data in pm.Data containers. "
                'Write observed=pm.Data("y", y), and the predictors likewise.',
            )
            return Bound(Export(self.source, frozenset()).model(), None, None)
        size = len(next(iter(rows.values())))
        problem = export.problem_with_cutting(size)
        if problem is not None:
            require(
                batch_size is None or batch_size >= size,
                ModelError,
                f"This PyMC model cannot be cut into mini-batches: {problem}. Use all rows at once (batch_size=None).",
            )
            batch_size = size
        return Bound(export.model(), rows, batch_size)

    def _row_containers(self) -> set[str]:
        """Containers with one entry per row."""
        known = {container.name: container for container in self.source.data_vars}
        if self.containers is not None:
            unknown = sorted(set(self.containers) - set(known))
            require(not unknown, ConfigurationError, f"No pm.Data containers {unknown}; the model has {sorted(known)}.")
            return set(self.containers)
        observed = [self.source.rvs_to_values[rv] for rv in self.source.observed_RVs]
        lengths = {len(value.get_value()) for value in observed if hasattr(value, "get_value") and value.ndim > 0}
        shapes = {name: np.shape(container.get_value()) for name, container in known.items()}
        return {name for name, shape in shapes.items() if len(lengths) == 1 and shape[:1] == (*lengths,)}


@dataclass(frozen=True)
class Export:
    """A PyMC model as JAX functions of named values and rows.

    Attributes:
        source: the model.
        containers: names of the containers whose entries are rows.
    """

    source: Any
    containers: frozenset[str]

    @cached_property
    def moving(self) -> frozenset[str]:
        """Free variables whose support depends on others: they stay in PyMC's unconstrained space."""
        free = set(self.source.free_RVs)
        moving = set()
        for rv in self.source.free_RVs:
            transform, value = self.source.rvs_to_transforms[rv], self.source.rvs_to_values[rv]
            if transform is not None and free & set(_ancestors([transform.backward(value, *rv.owner.inputs)])):
                moving.add(rv.name)
        return frozenset(moving)

    @cached_property
    def plain(self) -> Any:
        """The model in its constrained space, except for moving supports."""
        from pymc.model.transform.conditioning import remove_value_transforms

        return remove_value_transforms(self.source, [rv for rv in self.source.free_RVs if rv.name not in self.moving])

    @cached_property
    def names(self) -> dict[str, str]:
        """Free variables, in the model's order, and the names of the latents that stand for them."""
        values = {rv.name: self.source.rvs_to_values[rv].name for rv in self.source.free_RVs}
        return {name: value if name in self.moving else name for name, value in values.items()}

    @cached_property
    def latents(self) -> dict[str, Latent]:
        discrete = sorted(value.name for value in self.source.discrete_value_vars)
        require(
            not discrete,
            ModelError,
            f"The PyMC model has discrete free variables: {discrete}. Sum them out: pm.Mixture, or "
            "pymc_extras.marginalize.",
        )
        start = self.plain.initial_point()
        latents = {}
        for rv in self.source.free_RVs:
            latent, transform = self.names[rv.name], self.source.rvs_to_transforms[rv]
            if rv.name in self.moving or transform is None:
                latents[latent] = real(*np.shape(start[latent]), flat_prior=True)
            else:
                support = SUPPORTS.get(type(transform).__name__, constraints.dependent)
                inner = np.shape(self.source.initial_point()[self.source.rvs_to_values[rv].name])
                exported = PymcTransform.of(transform, rv, self.source.rvs_to_values[rv], inner)
                latents[latent] = Latent(np.shape(start[latent]), support, exported, flat_prior=True)
        return latents

    @cached_property
    def _terms(self) -> dict[str, Any]:
        """The log density of every variable and potential, as a PyTensor graph."""
        variables = [*self.plain.basic_RVs, *self.plain.potentials]
        graphs = self.plain.logp(vars=variables, jacobian=True, sum=False)
        return {variable.name: graph.sum() for variable, graph in zip(variables, graphs, strict=True)}

    @cached_property
    def _by_rows(self) -> frozenset[str]:
        """Variables and potentials whose log density depends on the rows."""
        return frozenset(name for name, graph in self._terms.items() if self._depends_on_rows(graph))

    @property
    def likelihood(self) -> frozenset[str]:
        """Observed variables, and potentials, that depend on the rows: what is scaled to all of them."""
        return self._by_rows - frozenset(self.names)

    def problem_with_cutting(self, size: int) -> str | None:
        """Why mini-batches make no sense, if so."""
        local = sorted(self._by_rows & frozenset(self.names))
        if local:
            return f"the prior of {local[0]!r} depends on the rows"
        values = {name: jnp.zeros(latent.shape) for name, latent in self.latents.items()}
        fewer = {name: self.source[name].get_value()[: max(size - 1, 1)] for name in self.containers}
        log_likelihood = self.model().log_likelihood
        assert log_likelihood is not None
        try:
            jax.eval_shape(log_likelihood, values, fewer)
        except (TypeError, ValueError) as error:
            return f"its likelihood needs exactly {size} rows ({str(error).splitlines()[0]})"
        return None

    def model(self) -> Model:
        """The :class:`isvi.Model`."""
        rows = sorted(self.containers)
        inputs = [self.names[name] for name in self.names]
        prior = self._exported([graph for name, graph in self._terms.items() if name not in self.likelihood], [])
        likelihood = self._exported([self._terms[name] for name in sorted(self.likelihood)], rows)

        def log_prior(values: dict[str, Array]) -> Array:
            return sum(prior(*(values[name] for name in inputs)), jnp.zeros(()))

        def log_likelihood(values: dict[str, Array], batch: dict[str, Array]) -> Array:
            return sum(likelihood(*(values[name] for name in inputs), *(batch[name] for name in rows)), jnp.zeros(()))

        return Model(
            self.latents,
            log_prior,
            log_likelihood if self.likelihood else None,
            report=self.report if self._reported else None,
            predict=self.predict,
            dims=self._dims,
            coords=self._coords,
            groups=self._groups,
        )

    @property
    def _dims(self) -> dict[str, list[str]]:
        return {name: list(axes) for name, axes in self.source.named_vars_to_dims.items() if None not in axes}

    @property
    def _coords(self) -> dict[str, list]:
        return {name: list(labels) for name, labels in self.source.coords.items() if labels is not None}

    @cached_property
    def _groups(self) -> dict[str, dict[str, np.ndarray]]:
        """The groups beside the posterior that PyMC's own functions look at."""
        containers = {container.name: np.asarray(container.get_value()) for container in self.source.data_vars}
        values = {rv.name: self.source.rvs_to_values[rv] for rv in self.source.observed_RVs}
        observed = {
            name: np.asarray(value.get_value() if hasattr(value, "get_value") else value.data)
            for name, value in values.items()
            if hasattr(value, "get_value") or hasattr(value, "data")
        }
        return {group: found for group, found in (("constant_data", containers), ("observed_data", observed)) if found}

    @cached_property
    def _reported(self) -> dict[str, Any]:
        """Variables with a moving support, and deterministics that are not per row, as graphs."""
        shown = [self.plain[name] for name in self.names if name in self.moving] + list(self.plain.deterministics)
        graphs = self.plain.replace_rvs_by_values(shown)
        pairs = [(variable.name, graph) for variable, graph in zip(shown, graphs, strict=True)]
        return {name: graph for name, graph in pairs if not self._depends_on_rows(graph)}

    def report(self, draws: dict[str, Array]) -> dict[str, np.ndarray]:
        """Draws of the latents, with what the model computes from them."""
        computed = self._exported(list(self._reported.values()), [])
        points = [jnp.asarray(draws[latent]) for latent in self.names.values()]
        found = jax.device_get(jax.jit(jax.vmap(computed))(*points))
        return {**draws, **dict(zip(self._reported, found, strict=True))}

    def predict(self, draws: dict[str, Array], data: Any, seed: int) -> dict[str, np.ndarray]:
        """Posterior predictive draws by ``pm.sample_posterior_predictive``, for the data now in the containers."""
        import arviz_base
        import pymc as pm

        containers = sorted(container.name for container in self.source.data_vars)
        require(
            data is None or (isinstance(data, dict) and set(data) <= set(containers)),
            ConfigurationError,
            f"predict takes new values of pm.Data containers; the model has {containers}.",
        )
        shown = self.report(draws) if self._reported else draws
        posterior = {name: np.asarray(shown[name], np.float64)[None] for name in self.names}
        groups = {"posterior": posterior, "constant_data": self._groups.get("constant_data", {})}
        tree = arviz_base.from_dict(
            {name: group for name, group in groups.items() if group}, dims=self._dims, coords=self._coords
        )
        before = {name: self.source[name].get_value() for name in data or {}}
        with self.source:
            try:
                pm.set_data(dict(data or {}))
                found = pm.sample_posterior_predictive(
                    as_trace(tree), random_seed=seed, progressbar=False, return_inferencedata=False
                )
            finally:
                pm.set_data(before)
        return {name: np.asarray(value)[0] for name, value in found.items()}

    def _depends_on_rows(self, graph: Any) -> bool:
        return any(node.name in self.containers for node in _ancestors([graph]) if hasattr(node, "get_value"))

    def _exported(self, graphs: list[Any], rows: list[str]) -> Callable[..., tuple[Array, ...]]:
        """A JAX function of the latents in order, then of the named rows."""
        values = {value.name: value for value in self.plain.value_vars}
        inputs = [values[latent] for latent in self.names.values()]
        # Containers are shared variables, which an export takes for constants: put inputs in their places.
        fresh = {self.plain[name]: self.plain[name].type(name) for name in rows}
        return _jax_function([*inputs, *fresh.values()], _replaced(graphs, fresh))


def as_trace(tree: Any) -> Any:
    """A DataTree as the installed PyMC takes it: PyMC 6 as it is, PyMC 5 as an ``arviz.InferenceData``."""
    import pymc as pm

    if int(pm.__version__.split(".")[0]) >= 6:
        return tree
    import arviz

    return arviz.from_datatree(tree)


class PymcTransform(Transform):
    """A transform of PyMC, from the unconstrained space onto the support, as numpyro writes transforms."""

    domain = constraints.real

    def __init__(self, backward: Callable, forward: Callable, log_jacobian: Callable, shape: tuple[int, ...]) -> None:
        self._backward, self._forward, self._log_jacobian, self._shape = backward, forward, log_jacobian, shape

    @classmethod
    def of(cls, transform: Any, rv: Any, value: Any, shape: tuple[int, ...]) -> "PymcTransform":
        constrained = rv.type("constrained")
        inputs = rv.owner.inputs
        return cls(
            _jax_function([value], [transform.backward(value, *inputs)]),
            _jax_function([constrained], [transform.forward(constrained, *inputs)]),
            _jax_function([value], [transform.log_jac_det(value, *inputs)]),
            shape,
        )

    def __call__(self, x: Array) -> Array:
        return self._backward(x)[0]

    def _inverse(self, y: Array) -> Array:
        return self._forward(y)[0]

    def log_abs_det_jacobian(self, x: Array, y: Array, intermediates: Any = None) -> Array:
        return self._log_jacobian(x)[0]

    def inverse_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        return self._shape

    def tree_flatten(self) -> tuple[tuple, tuple]:
        return (), ((), {"functions": (self._backward, self._forward, self._log_jacobian, self._shape)})


def _ancestors(graphs: list[Any]) -> Any:
    from pytensor.graph.traversal import ancestors

    return ancestors(graphs)


def _replaced(graphs: list[Any], replacements: dict[Any, Any]) -> list[Any]:
    from pytensor.graph.replace import graph_replace

    return graph_replace(graphs, replacements, strict=False) if graphs and replacements else graphs


def _jax_function(inputs: list[Any], outputs: list[Any]) -> Callable[..., tuple[Array, ...]]:
    """Export PyTensor graphs. Importing PyTensor's JAX backend switches JAX to 64 bits: this is undone."""
    if not outputs:
        return lambda *values: ()
    precision = jax.config.read("jax_enable_x64")
    try:
        from pymc.sampling.jax import get_jaxified_graph
    finally:
        jax.config.update("jax_enable_x64", precision)
    function = get_jaxified_graph(inputs=inputs, outputs=outputs)

    def quiet(*values: Array) -> tuple[Array, ...]:
        with warnings.catch_warnings():
            # PyTensor asks for float64 throughout; in JAX's default precision float32 is what there is.
            warnings.filterwarnings("ignore", message="Explicitly requested dtype", category=UserWarning)
            return tuple(function(*values))

    return quiet
