"""The others' mode and curvature at some values of the drivers: what a nested q is made of, and where its drivers are.

With m(t) the mode of the others u given drivers t, and H(t) minus the Hessian there, ``log p(t, m(t)) - log|H(t)| / 2``
is the log density of t alone but for a constant, as far as u given t is Gaussian (Laplace). All in double precision.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from isvi.core.compiling import A_LITTLE, on_cpu
from isvi.families.nested import NestedGaussian

Vector = Float[np.ndarray, " _"]
Matrix = Float[np.ndarray, "_ _"]

NEAR = 0.05
"""Squared length of a Newton step, in sds of the others together, after which no other is taken."""
QUADRATIC = 1e-4
"""Or when a step has left no more than this part of its squared length."""
MOST_STEPS = 12
HALVINGS = 10
SMALLEST = 1e-8
"""Curvatures below this part of the largest are taken for this."""
COST_OF_COLUMN = 2
"""Model gradients that a column of a Hessian takes the time of."""
MOST_ROUNDS, LOOKS = 5, 6
"""Of the search for the drivers, and of looks along an axis in each of them."""
LEAST_FALL, FALL, MOST_FALL = 2.5, 4.5, 8.0
"""How far the log density of the drivers is to have fallen at the end of an axis, in nats: three sds of a Gaussian."""
FARTHER = 1.7
"""By how much further, or nearer, the next look is."""
WIDER = 1.2
"""q(t) begins by so much wider than that: weights take mass away where there is too much, and find none where there is
none."""
RESTS, SAME_WIDTH = 0.5, 1.4
"""The search ends when the drivers move less than this, in sds, and no sd changes by more than this factor."""


class Node(NamedTuple):
    """The others, given the drivers."""

    drivers: Vector
    mode: Vector
    factor: Matrix
    """L of their covariance."""
    value: float
    """The log density of the drivers, by Laplace."""


class Nodes:
    """Asks the model.

    Attributes:
        evaluated: model gradients that it took, about.
    """

    def __init__(self, log_joint: Callable[[Array], Array], shape: NestedGaussian) -> None:
        others, drivers = shape.others, np.asarray(shape.drivers)

        def joint(given: Array, u: Array) -> Array:
            return log_joint(jnp.zeros(shape.size).at[drivers].set(given).at[others].set(u))

        self.evaluated = 0
        self._value = jax.jit(joint, compiler_options=on_cpu(A_LITTLE))
        self._slope = jax.jit(jax.grad(joint, 1), compiler_options=on_cpu(A_LITTLE))
        self._slopes = jax.jit(
            lambda t, u: (jax.grad(joint, 1)(t, u), -jax.hessian(joint, 1)(t, u)), compiler_options=on_cpu(A_LITTLE)
        )
        self._cost = 1 + COST_OF_COLUMN * len(others)

    def at(self, drivers: Vector, guess: Vector) -> Node | None:
        """By Newton's method from a guess of the mode; None if there is none where the log joint curves downwards."""
        mode = guess
        for _ in range(MOST_STEPS):
            slope, curvature = map(np.asarray, self._slopes(drivers, mode))
            self.evaluated += self._cost
            if not (np.isfinite(slope).all() and np.isfinite(curvature).all()):
                return None
            sizes, axes = np.linalg.eigh((curvature + curvature.T) / 2)
            upright = np.maximum(np.abs(sizes), SMALLEST * np.abs(sizes).max())
            step = axes @ ((axes.T @ slope) / upright)
            length = float(slope @ step)
            reached = self._along(drivers, mode, step, length)
            if reached is None:
                return None
            mode, whole = reached
            if whole and (length < NEAR or self._as_predicted(drivers, mode, sizes, axes, length)):
                return self._node(drivers, mode, sizes, axes)
        return None

    def _as_predicted(self, drivers: Vector, mode: Vector, sizes: Vector, axes: Matrix, length: float) -> bool:
        """Whether next to nothing is left after a step: then the curvature is the same before and after it."""
        self.evaluated += 1
        left = axes.T @ np.asarray(self._slope(drivers, mode))
        return bool(sizes.min() > 0 and np.sum(left**2 / sizes) < QUADRATIC * length)

    def _along(self, drivers: Vector, mode: Vector, step: Vector, length: float) -> tuple[Vector, bool] | None:
        """As much of the step as the log joint rises along, and whether that is all of it."""
        before, part = float(self._value(drivers, mode)), 1.0
        for _ in range(HALVINGS):
            self.evaluated += 1
            there = float(self._value(drivers, mode + part * step))
            if there >= before - 1e-9 * abs(before) + 1e-4 * part * length or (length < NEAR and np.isfinite(there)):
                return mode + part * step, part == 1
            part /= 2
        return None

    def _node(self, drivers: Vector, mode: Vector, sizes: Vector, axes: Matrix) -> Node | None:
        if sizes.min() <= SMALLEST * sizes.max():
            return None
        factor = np.linalg.cholesky((axes / sizes) @ axes.T)
        return Node(drivers, mode, factor, float(self._value(drivers, mode)) - 0.5 * float(np.log(sizes).sum()))


class Middle(NamedTuple):
    """Where the drivers are."""

    location: Vector
    root: Matrix
    """A root of their covariance: the axes along which it was looked for."""
    mode: Vector
    """Of the others there."""


def find_middle(nodes: Nodes, start: Middle) -> tuple[Middle | None, list[Node]]:
    """Where the drivers' log density has fallen by as much on one side of each axis as on the other, and how wide it is
    there; and everything that was seen on the way. A density with a long tail is so covered as a whole."""
    now = start
    seen: list[Node] = []
    for _ in range(MOST_ROUNDS):
        middle = nodes.at(now.location, now.mode)
        if middle is None:
            return None, seen
        seen.append(middle)
        ends = np.array([[_end(nodes, middle, sign * axis, seen) for sign in (-1, 1)] for axis in now.root.T])
        top = max(seen[-(1 + 2 * LOOKS * len(ends)) :], key=lambda node: node.value)
        step, width = (ends[:, 1] - ends[:, 0]) / 2, WIDER * (ends[:, 1] + ends[:, 0]) / (2 * np.sqrt(2 * FALL))
        now = Middle(now.location + now.root @ step, now.root * width, top.mode)
        if (np.abs(step) < RESTS * width).all() and (np.abs(np.log(width / WIDER)) < np.log(SAME_WIDTH)).all():
            return now, seen
    return now, seen


def _end(nodes: Nodes, middle: Node, axis: Vector, seen: list[Node]) -> float:
    """How far along an axis the log density of the drivers has fallen from the middle's by what is asked for."""
    length, mode = 2.0, middle.mode
    for _ in range(LOOKS):
        node = nodes.at(middle.drivers + length * axis, mode)
        if node is None:
            length /= FARTHER
            continue
        seen.append(node)
        fall = middle.value - node.value
        if LEAST_FALL < fall < MOST_FALL:
            return length * float(np.sqrt(FALL / fall))
        # It is a square near the middle, and no more than linear in a tail.
        length *= float(np.clip(np.sqrt(FALL / max(fall, 0.1)), 1 / FARTHER, FARTHER))
        mode = node.mode if fall < MOST_FALL else mode
    return length
