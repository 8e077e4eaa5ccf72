"""The user's callable, made uniform: called with what it wants, its answer checked."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np

from isvi.core.errors import ModelError, require


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
        check: whether the gradient is compared with differences of the density before fitting.
    """

    function: Callable[..., tuple[Any, Any]]
    flat: str | None = None
    vectorized: bool = False
    rows: Any = None
    door: str = "isvi.from_gradient"
    check: bool = True
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
