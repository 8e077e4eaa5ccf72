"""Posteriors with reference draws, where there is a copy of them on this machine."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.stats import cauchy, norm

import isvi

ROOT = Path("/work/shared/posteriordb")


def load(name: str) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Data and reference moments; skips the test where there are none."""
    folder = ROOT / name
    if not folder.exists():
        pytest.skip(f"no copy of posteriordb's {name} at {folder}")
    data = {key: np.asarray(value) for key, value in json.loads((folder / "data.json").read_text()).items()}
    return data, json.loads((folder / "reference.json").read_text())


def regression(
    columns: list[np.ndarray], y: np.ndarray, log_prior: Callable[[dict], Any] = lambda z: jnp.zeros(())
) -> tuple[isvi.Model, dict[str, np.ndarray]]:
    """y ~ N(X beta, sigma); by default with flat priors on beta and sigma."""
    x = np.stack([np.broadcast_to(column, y.shape) for column in columns], axis=1).astype(float)
    model = isvi.Model(
        {"beta": isvi.real(x.shape[1], flat_prior=True), "sigma": isvi.positive(via="exp", flat_prior=True)},
        log_prior,
        lambda z, rows: norm.logpdf(rows["y"], rows["x"] @ z["beta"], z["sigma"]).sum(),
    )
    return model, {"x": x, "y": y.astype(float)}


def kilpisjarvi(data: dict[str, np.ndarray]) -> tuple[isvi.Model, dict[str, np.ndarray]]:
    """A line through years: intercept and slope are almost perfectly correlated."""
    location = jnp.array([float(data["pmualpha"]), float(data["pmubeta"])])
    scale = jnp.array([float(data["psalpha"]), float(data["psbeta"])])
    return regression([1.0, data["x"]], data["y"], lambda z: norm.logpdf(z["beta"], location, scale).sum())


def kidiq(data: dict[str, np.ndarray]) -> tuple[isvi.Model, dict[str, np.ndarray]]:
    columns = [1.0, data["mom_hs"], data["mom_iq"], data["mom_hs"] * data["mom_iq"]]
    return regression(columns, data["kid_score"], lambda z: cauchy.logpdf(z["sigma"], 0.0, 2.5))


def earnings(data: dict[str, np.ndarray]) -> tuple[isvi.Model, dict[str, np.ndarray]]:
    columns = [1.0, data["height"], data["male"], data["height"] * data["male"]]
    return regression(columns, np.log(data["earn"]))


def sblrc(data: dict[str, np.ndarray]) -> tuple[isvi.Model, dict[str, np.ndarray]]:
    return regression(
        list(data["X"].T), data["y"], lambda z: norm.logpdf(z["beta"], 0, 10).sum() + norm.logpdf(z["sigma"], 0, 10)
    )
