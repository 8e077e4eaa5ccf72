"""How good a stored record's gradient still is after q has moved, by the dimension of a factor.

A factor is one Gaussian of d dimensions with a full covariance. A record of ten draws was made at an old q; today's q
is a given KL away, in a random direction. Estimates of the ELBO's gradient today, by location and Cholesky factor:

    fresh          ten new draws
    exact          stored draws, exact importance weights
    normalised     the same, weights divided by their sum
    residual       carry each stored gradient to today's mean by q's own curvature, g(z) + P (z - mu) with P the
                   precision of q, and weight (normalised) only what is left: g minus the score of q
    carried        the same without any weight

Errors are in the metric of q (error' F^{-1} error), in which they do not depend on how q is written; everything is
computed in coordinates in which today's q is the standard Gaussian. Targets: a Gaussian whose whitened precision has
eigenvalues from 1/2 to 2, at distance 1; and logistic regression with four rows per coefficient (at least 20) around
its Laplace approximation, shifted by one standard deviation in a random direction.
Run with ``python -m benchmarks.reuse_by_dimension``; writes ``benchmarks/results/reuse_by_dimension.*``.
"""

import csv
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.optimize import brentq
from scipy.special import expit

from reproduce.plotting import BLACK, BLUE, GREEN, ORANGE, PAGE, RED, panels, save

DIMENSIONS = (1, 2, 5, 10, 25, 50, 100, 250, 500)
DIVERGENCES = (0.01, 0.1, 0.5, 2.0)
DRAWS = 10
REPEATS = 300
EXACT_DRAWS = 40_000
RESULTS = Path(__file__).parent / "results"
HEADING = "## Tables"
STYLES = {
    "exact": (BLUE, "o", "exact weights"),
    "normalised": (ORANGE, "s", "self-normalised weights"),
    "residual": (RED, "D", "weighted residual"),
    "carried": (GREEN, "^", "carried, no weights"),
    "fresh residual": (BLACK, "v", "new draws, residual form"),
}

Gradient = tuple[np.ndarray, np.ndarray]
"""By location (d) and by Cholesky factor (d, d), lower triangular, where q is the standard Gaussian."""


@dataclass(frozen=True)
class Target:
    """The gradient of the log joint in whitened coordinates, for rows of draws; and the ELBO's gradient there."""

    name: str
    gradient: Callable[[np.ndarray], np.ndarray]
    truth: Gradient


def gaussian_target(dim: int, rng: np.random.Generator) -> Target:
    basis, _ = np.linalg.qr(rng.normal(size=(dim, dim)))
    precision = (basis * np.geomspace(0.5, 2.0, dim) if dim > 1 else 2.0 * np.ones((1, 1))) @ basis.T
    mode = rng.normal(size=dim)
    mode /= np.linalg.norm(mode)
    truth = precision @ mode, np.tril(np.eye(dim) - precision)
    return Target("Gaussian", lambda draws: -(draws - mode) @ precision, truth)


def logistic_target(dim: int, rng: np.random.Generator) -> Target:
    rows = max(20, 4 * dim)
    x = rng.normal(size=(rows, dim)) * 2 / np.sqrt(dim)
    y = (rng.uniform(size=rows) < expit(x @ rng.normal(size=dim))).astype(float)
    mode = np.zeros(dim)
    for _ in range(50):
        share = expit(x @ mode)
        precision = (x.T * (share * (1 - share))) @ x + np.eye(dim)
        mode = mode + np.linalg.solve(precision, x.T @ (y - share) - mode)
    lower = np.linalg.cholesky(np.linalg.inv(precision))
    shift = rng.normal(size=dim)
    centre = mode + lower @ shift / np.linalg.norm(shift)

    def gradient(draws: np.ndarray) -> np.ndarray:
        points = centre + draws @ lower.T
        return ((y - expit(points @ x.T)) @ x - points) @ lower

    # Mirrored draws, in the form with the least noise.
    by_location, by_cholesky = np.zeros(dim), np.zeros((dim, dim))
    for _ in range(EXACT_DRAWS // 2000):
        half = rng.normal(size=(1000, dim))
        draws = np.concatenate([half, -half])
        residual = gradient(draws) + draws
        by_location += residual.mean(axis=0) * 2000 / EXACT_DRAWS
        by_cholesky += np.tril(residual.T @ draws) / EXACT_DRAWS
    return Target("logistic", gradient, (by_location, by_cholesky))


def moved(dim: int, divergence: float, rng: np.random.Generator) -> Gradient:
    """Location and Cholesky factor of an old q, in a random direction (isotropic in the metric of q) and as far away
    from the standard Gaussian as KL(old || today) says."""
    location, factor = rng.normal(size=dim), np.tril(rng.normal(size=(dim, dim)))
    factor[np.diag_indices(dim)] /= np.sqrt(2)
    length = np.sqrt(location @ location + np.sum(factor**2) + np.sum(np.diag(factor) ** 2))
    location, factor = location / length, factor / length

    def excess(step: float) -> float:
        lower = np.eye(dim) + step * factor
        volume = 2 * np.sum(np.log(np.diag(lower)))
        return 0.5 * (np.sum(lower**2) + step**2 * location @ location - dim - volume) - divergence

    shrinking = -np.diag(factor).min()  # the factor's diagonal must stay positive
    step = brentq(excess, 0, 0.9999 / shrinking if shrinking > 0.01 else 50.0)
    return step * location, np.eye(dim) + step * factor


def squared_error(estimate: Gradient, truth: Gradient) -> float:
    """error' F^{-1} error: the information is 1 for the location and below the diagonal, and 2 on it."""
    by_location, by_cholesky = estimate[0] - truth[0], np.tril(estimate[1] - truth[1])
    return float(np.sum(by_location**2) + np.sum(by_cholesky**2) - 0.5 * np.sum(np.diag(by_cholesky) ** 2))


def plain(draws: np.ndarray, gradients: np.ndarray, weights: np.ndarray) -> Gradient:
    """The reparameterization gradient with the entropy's in closed form; weights sum to one if fresh."""
    weighted = weights[:, None] * gradients
    return weighted.sum(axis=0), weighted.T @ draws + np.eye(draws.shape[1])


def residual_form(draws: np.ndarray, gradients: np.ndarray, weights: np.ndarray) -> Gradient:
    """Weights on what is left of the gradient beyond q's own score; the level is taken out before the scale is looked
    at, and what that costs is put back."""
    left = gradients + draws
    level = weights @ left
    spread = (weights[:, None] * (left - level)).T @ draws
    return level, spread / (1 - np.sum(weights**2))


def estimates(target: Target, old: Gradient, rng: np.random.Generator) -> dict[str, Gradient]:
    dim = len(old[0])
    even = np.full(DRAWS, 1 / DRAWS)
    new_draws = rng.normal(size=(DRAWS, dim))
    new_gradients = target.gradient(new_draws)
    noise = rng.normal(size=(DRAWS, dim))
    draws = old[0] + noise @ old[1].T
    gradients = target.gradient(draws)
    log_weights = 0.5 * np.sum(noise**2 - draws**2, axis=1) + np.sum(np.log(np.diag(old[1])))
    weights = np.exp(log_weights)
    normalised = np.exp(log_weights - log_weights.max())
    normalised /= normalised.sum()
    # One weight may be all there is; then the residual form has no spread to look at.
    tempered = 0.999 * normalised + 0.001 * even
    return {
        "fresh": plain(new_draws, new_gradients, even),
        "fresh residual": residual_form(new_draws, new_gradients, even),
        "exact": plain(draws, gradients, weights / DRAWS),
        "normalised": plain(draws, gradients, normalised),
        "residual": residual_form(draws, gradients, tempered),
        "carried": residual_form(draws, gradients, even),
    }


def measure(make: Callable[[int, np.random.Generator], Target], dim: int) -> list[dict]:
    rng = np.random.default_rng(dim)
    target = make(dim, rng)
    signal = squared_error((np.zeros(dim), np.zeros((dim, dim))), target.truth)
    rows = []
    for divergence in DIVERGENCES:
        errors: dict[str, list[float]] = {}
        for _ in range(REPEATS):
            old = moved(dim, divergence, rng)
            for name, estimate in estimates(target, old, rng).items():
                errors.setdefault(name, []).append(squared_error(estimate, target.truth))
        fresh = np.mean(errors["fresh"])
        for name, values in errors.items():
            rows.append(
                {
                    "target": target.name,
                    "dimension": dim,
                    "divergence": divergence,
                    "estimate": name,
                    "mse": np.mean(values),
                    "standard_error": np.std(values) / np.sqrt(REPEATS),
                    "ratio": np.mean(values) / fresh,
                    "median_ratio": np.median(values) / np.median(errors["fresh"]),
                    "signal": signal,
                }
            )
    return rows


def table(rows: list[dict]) -> str:
    """Mean squared error over that of new draws in the plain form, by dimension."""
    lines = []
    for target in dict.fromkeys(row["target"] for row in rows):
        lines += [f"### {target} target", "", "| KL | estimate | " + " | ".join(f"d = {d}" for d in DIMENSIONS) + " |"]
        lines += ["| --- | --- |" + " --- |" * len(DIMENSIONS)]
        for divergence in DIVERGENCES:
            for name in STYLES:
                mine = [
                    row["ratio"]
                    for row in rows
                    if (row["target"], row["divergence"], row["estimate"]) == (target, divergence, name)
                ]
                lines.append(f"| {divergence} | {name} | " + " | ".join(f"{ratio:.2g}" for ratio in mine) + " |")
        lines.append("")
    return "\n".join(lines)


def steps_table(rows: list[dict]) -> str:
    """How far one step goes: half the squared length of the natural step at a rate, 0.5 rate^2 (signal + error)."""
    lines = ["| rate | " + " | ".join(f"d = {d}" for d in DIMENSIONS) + " |", "| --- |" + " --- |" * len(DIMENSIONS)]
    fresh = [row for row in rows if row["target"] == "logistic" and row["estimate"] == "fresh"]
    fresh = [row for row in fresh if row["divergence"] == DIVERGENCES[0]]
    for rate in (0.1, 0.03, 0.01, 0.003):
        cells = [f"{0.5 * rate**2 * (row['mse'] + row['signal']):.2g}" for row in fresh]
        lines.append(f"| {rate} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def write_tables(rows: list[dict]) -> None:
    """Below the heading; what was concluded stands above it, written by hand."""
    page = RESULTS / "reuse_by_dimension.md"
    above = page.read_text().split(HEADING)[0] if page.exists() else ""
    steps = "### KL of one natural step, logistic target, ten new draws in the plain form"
    page.write_text(f"{above}{HEADING}\n\n{table(rows)}\n{steps}\n\n{steps_table(rows)}\n")


def draw(rows: list[dict]) -> None:
    targets = list(dict.fromkeys(row["target"] for row in rows))
    figure, axes = panels(len(targets), len(DIVERGENCES), PAGE, 3.9, sharex=True, sharey=True)
    for line, target in zip(axes, targets, strict=True):
        for one, divergence in zip(line, DIVERGENCES, strict=True):
            for name, (colour, marker, label) in STYLES.items():
                mine = [
                    row
                    for row in rows
                    if (row["target"], row["divergence"], row["estimate"]) == (target, divergence, name)
                ]
                one.plot(
                    [row["dimension"] for row in mine],
                    [row["ratio"] for row in mine],
                    color=colour,
                    marker=marker,
                    markersize=3,
                    label=label,
                    linestyle="--" if name == "fresh residual" else "-",
                )
            one.axhline(1.0, color="0.6", linewidth=0.6, zorder=0)
            one.set(xscale="log", yscale="log")
            one.set_title(f"{target}, KL moved {divergence:g}", loc="left")
    for one in axes[:, 0]:
        one.set_ylabel("error / error of new draws")
    for one in axes[-1]:
        one.set_xlabel("dimensions of the factor")
        one.set_xticks([1, 10, 100, 500], ["1", "10", "100", "500"])
        one.minorticks_off()
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=5)
    save(figure, RESULTS, "reuse_by_dimension")


def main() -> None:
    rows = []
    for make in (gaussian_target, logistic_target):
        for dim in DIMENSIONS:
            rows += measure(make, dim)
            print(rows[-1]["target"], dim, flush=True)
    RESULTS.mkdir(exist_ok=True)
    with (RESULTS / "reuse_by_dimension.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0].keys(), lineterminator="\n")
        writer.writeheader()
        writer.writerows(
            {key: f"{value:.5g}" if isinstance(value, float) else value for key, value in row.items()} for row in rows
        )
    draw(rows)
    write_tables(rows)


if __name__ == "__main__":
    main()
