"""Fits that were never fitted: q is put where a test wants it."""

from typing import Any

import isvi
from isvi.data import Dataset
from isvi.families import approximate
from isvi.results.history import History
from isvi.results.status import Status


def fixed_fit(model: isvi.Model, family: Any, params: Any) -> isvi.Fit:
    """``params`` are the parameters, or a function that makes them from the bound approximation."""
    approximation = approximate(family, model.latents)
    made = params(approximation) if callable(params) else params
    ended = Status("budget", "as the test left it")
    return isvi.Fit(model, approximation, Dataset.from_arrays(None), made, History(), ended, gradients=1000, steps=1000)
