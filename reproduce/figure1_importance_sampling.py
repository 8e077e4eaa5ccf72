"""Figure 1: five draws from q(lambda), the same draws under q(lambda'), and the weights between them."""

from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.axes import Axes

import isvi
from reproduce.plotting import BLACK, BLUE, COLUMN, RED, panels, save
from reproduce.results import Claim, Size, write_claims, write_table

OLD_MEAN, OLD_COVARIANCE = np.array([0.0, 0.0]), np.array([[1.0, 0.5], [0.5, 1.0]])
NEW_MEAN, NEW_COVARIANCE = np.array([0.9, 0.3]), np.array([[0.55, -0.1], [-0.1, 0.8]])
LETTERS = "ABCDE"
LEGIBLE_SEED = 2942
"""Draws that do not hide each other; D loses and E gains, as in the paper."""


def approximations() -> tuple[isvi.Approximation, object, object]:
    """A full-rank Gaussian over two latents, at the old and at the new parameters."""
    approximation = isvi.approximate(isvi.FullRank(), {"z": isvi.real(2)})

    def params(mean: np.ndarray, covariance: np.ndarray) -> object:
        factor = np.linalg.cholesky(covariance)
        stored = factor + np.diag(np.log(np.diag(factor)) - np.diag(factor))
        return approximation.init(jnp.asarray(mean), jnp.ones(2))._replace(factor=jnp.asarray(stored)[None])

    return approximation, params(OLD_MEAN, OLD_COVARIANCE), params(NEW_MEAN, NEW_COVARIANCE)


def compute(draws: int, seed: int = LEGIBLE_SEED) -> list[dict[str, float | str]]:
    """Draws, both standardisations, and both weights."""
    approximation, old, new = approximations()
    z = approximation.draw(jax.random.key(seed), old, draws)
    piece = approximation.pieces[0]
    eps, eps_new = (jax.vmap(piece.standardize, (None, 0))(params, z) for params in (old, new))

    def ratio(density: Callable) -> np.ndarray:
        now, then = (jax.vmap(density, (None, 0))(params, z)[:, 0] for params in (new, old))
        return np.exp(np.asarray(now - then, float))

    exact, paper = ratio(approximation.log_density), ratio(approximation.base_log_density)
    columns = {"z1": z[:, 0], "z2": z[:, 1], "eps1": eps[:, 0], "eps2": eps[:, 1]}
    columns |= {"eps1_new": eps_new[:, 0], "eps2_new": eps_new[:, 1], "weight_paper": paper, "weight_exact": exact}
    values = {name: np.asarray(column, float) for name, column in columns.items()}
    return [{"draw": LETTERS[i % 5]} | {name: float(v[i]) for name, v in values.items()} for i in range(draws)]


def ellipses(axis: Axes, mean: np.ndarray, covariance: np.ndarray, colour: str) -> None:
    """Contours at one, two and three standard deviations."""
    angle = np.linspace(0, 2 * np.pi, 100)
    ring = np.linalg.cholesky(covariance) @ np.stack([np.cos(angle), np.sin(angle)])
    for radius in (1, 2, 3):
        x, y = mean[:, None] + radius * ring
        axis.plot(x, y, color=colour, linewidth=0.7, alpha=1 - 0.22 * radius)


def draw(rows: list[dict], out: Path) -> None:
    figure, axes = panels(2, 2, COLUMN, 3.5)
    identity, zero = np.eye(2), np.zeros(2)
    layout = (
        (axes[0, 0], ("z1", "z2"), OLD_MEAN, OLD_COVARIANCE, BLUE, r"$z_m \sim q(\lambda)$", False),
        (axes[0, 1], ("z1", "z2"), NEW_MEAN, NEW_COVARIANCE, RED, r"the same under $q(\lambda')$", True),
        (axes[1, 0], ("eps1", "eps2"), zero, identity, BLUE, r"$\epsilon_m = f^{-1}(z_m, \lambda)$", False),
        (axes[1, 1], ("eps1_new", "eps2_new"), zero, identity, RED, r"$\epsilon'_m = f^{-1}(z_m, \lambda')$", True),
    )
    for axis, (first, second), mean, covariance, colour, title, weighted in layout:
        ellipses(axis, mean, covariance, colour)
        for row in rows:
            size = 22 * (row["weight_exact"] if weighted else 1.0)
            axis.scatter(row[first], row[second], s=max(size, 1.5), marker="D", color=BLACK, linewidth=0, zorder=3)
            axis.annotate(row["draw"], (row[first], row[second]), (4, 3), textcoords="offset points", fontsize=7)
        axis.set_title(title)
        axis.set_xlabel(r"$z_1$" if first == "z1" else r"$\epsilon_1$", labelpad=1)
        axis.set_ylabel(r"$z_2$" if first == "z1" else r"$\epsilon_2$", labelpad=1)
        axis.set(xlim=(-3.4, 3.4), ylim=(-3.4, 3.4), aspect="equal")
    save(figure, out, "figure1_importance_sampling")


def run(size: Size, out: Path) -> list[Claim]:
    rows = compute(5)
    write_table(out, "figure1_draws", rows)
    draw(rows, out)
    many = compute({"toy": 2000, "reduced": 20_000, "full": 20_000}[size], seed=1)
    exact, paper = (np.array([row[f"weight_{kind}"] for row in many]) for kind in ("exact", "paper"))
    _, old, new = approximations()
    volume = float(np.exp(np.trace(new.factor[0]) - np.trace(old.factor[0])))  # type: ignore[attr-defined]
    write_table(
        out,
        "figure1_means",
        [{"draws": len(many), "mean_exact": exact.mean(), "mean_paper": paper.mean(), "volume_ratio": volume}],
    )
    listed = ", ".join(f"{r['draw']} {r['weight_paper']:.2f} / {r['weight_exact']:.2f}" for r in rows)
    claims = [
        Claim(
            "1",
            "the importance sampling estimate with w = phi(eps')/phi(eps) is unbiased",
            "unbiased",
            f"weights of the five draws, paper / exact: {listed}. Over {len(many):,} draws the mean weight is "
            f"{paper.mean():.3f} with the paper's formula, {exact.mean():.3f} with exact density ratios",
            "does not hold",
            f"The formula leaves out the ratio of Jacobians. Its mean is |det L'|/|det L| = {volume:.3f} here, and 1 "
            "only while the scale does not move. With the ratio put back the estimate is unbiased.",
        )
    ]
    write_claims(out, "figure1", claims)
    return claims
