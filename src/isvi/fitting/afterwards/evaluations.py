"""The model at draws that are made after a run, by this process, whoever made the records before: there are few."""

from collections.abc import Callable
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from isvi.fitting.setup import Setup

AT_ONCE = 16
"""Draws that the model is evaluated at in one call."""


class Evaluations:
    """Log joints and gradients of all rows, which are one mini-batch, in the precision of the draws."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup

    def __call__(self, draws: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        missing = -len(draws) % AT_ONCE
        filled = np.concatenate([draws, np.repeat(draws[-1:], missing, axis=0)])
        if self._setup.target.on_host:
            filled = draws
        pieces = [self._model(filled[start : start + AT_ONCE]) for start in range(0, len(filled), AT_ONCE)]
        values, gradients = (np.concatenate(parts)[: len(draws)] for parts in zip(*pieces, strict=True))
        return values, gradients

    @cached_property
    def _model(self) -> Callable[[np.ndarray], Any]:
        target, batch = self._setup.target, self._setup.dataset.first.batch(0)
        ask = target.values_and_gradients
        if not target.on_host:
            ask = jax.jit(ask, compiler_options=self._setup.effort)
        return lambda draws: jax.device_get(ask(jnp.asarray(draws), batch))
