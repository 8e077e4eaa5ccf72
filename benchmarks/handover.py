"""``python -m benchmarks.handover --data PATH``: NUTS from a fit, and from nowhere, on the reference posteriors.

``fit.mcmc`` against NumPyro's NUTS as it comes (1,000 steps of warm-up, a diagonal mass matrix), four chains of 1,000
draws each, on the same density in the same unconstrained coordinates. Model gradients are of all rows, and the fit's
own are counted in, with half of ``fit.diagnose()``'s evaluations as so many gradients. And leave-one-out by the fit's
own draws against that by the chains'. Writes ``handover.md`` to ``benchmarks/results``.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import jax
import jax.numpy as jnp
import numpy as np
import typer
from arviz_stats.base import array_stats

import isvi
from benchmarks.posteriordb.reference import Posterior, find
from isvi.exchange.pointwise import fitted_rows, pointwise_log_likelihood
from isvi.model.binding import make_target
from isvi.results.weights.unconstrained import Unconstrained

CHAINS, DRAWS, WARMUP = 4, 1000, 1000
HEAD = (
    "posterior | fit | verdict | gradients | ESS | per 1,000 ESS | R-hat | furthest mean (standard errors) | "
    "NUTS: gradients | ESS | per 1,000 ESS | R-hat | furthest mean | ratio | LOO: fit - chains | in standard errors"
)


@dataclass(frozen=True)
class Measured:
    """Chains, judged by the reference's parameters."""

    gradients: int
    effective: float
    r_hat: float
    furthest: float

    @classmethod
    def of(cls, posterior: Posterior, values: dict[str, np.ndarray], gradients: int) -> "Measured":
        draws = posterior.pick(values)
        axes = {"chain_axis": 0, "draw_axis": 1}
        effective = array_stats.ess(draws, **axes, method="bulk")
        error = draws.std(axis=(0, 1)) * np.sqrt(1 / effective + 1e-4)  # the reference has 10,000 draws
        off = np.abs(draws.mean(axis=(0, 1)) - posterior.mean) / error
        return cls(gradients, float(effective.min()), float(array_stats.rhat(draws, **axes).max()), float(off.max()))

    @property
    def price(self) -> float:
        return 1000 * self.gradients / self.effective

    @property
    def cells(self) -> list[str]:
        return [
            f"{self.gradients:,}",
            f"{self.effective:,.0f}",
            f"{self.price:,.0f}",
            f"{self.r_hat:.3f}",
            f"{self.furthest:.1f}",
        ]


def plain_nuts(fit: isvi.Fit, seed: int) -> tuple[np.ndarray, int]:
    """NumPyro's NUTS as it comes: draws in unconstrained space, and leapfrog steps."""
    from numpyro.infer import MCMC, NUTS

    with jax.enable_x64(True):
        target = make_target(fit.model, Unconstrained(fit.approximation.coordinates).plain)
        rows = jax.tree.map(lambda a: a.astype(float) if jnp.issubdtype(a.dtype, jnp.floating) else a, fit.data())
        kernel = NUTS(potential_fn=lambda u: -target.exact_values(u[None], rows)[0])
        sampler = MCMC(
            kernel,
            num_warmup=WARMUP,
            num_samples=DRAWS,
            num_chains=CHAINS,
            chain_method="vectorized",
            progress_bar=False,
        )
        start = jax.random.uniform(jax.random.key(seed + 1), (CHAINS, target.coordinates.size), minval=-2, maxval=2)
        sampler.warmup(jax.random.key(seed), init_params=start, extra_fields=("num_steps",), collect_warmup=True)
        spent = int(np.sum(sampler.get_extra_fields()["num_steps"]))
        sampler.run(sampler.post_warmup_state.rng_key, extra_fields=("num_steps",))
        draws = np.asarray(sampler.get_samples(group_by_chain=True))
        return draws, spent + int(np.sum(sampler.get_extra_fields()["num_steps"]))


def named(fit: isvi.Fit, draws: np.ndarray) -> dict[str, np.ndarray]:
    space = Unconstrained(fit.approximation.coordinates)
    flat = fit._constrained(jnp.asarray(space.leave(draws.reshape(-1, draws.shape[-1]))[0]))
    return {name: values.reshape(*draws.shape[:2], *values.shape[1:]) for name, values in flat.items()}


def leave_one_out(fit: isvi.Fit, draws: np.ndarray) -> tuple[str, str]:
    """The difference of the fit's elpd from that of the chains, and in standard errors of the latter; with a mark if
    the fit's k-hats are flagged."""
    import arviz_base
    import arviz_stats

    space = Unconstrained(fit.approximation.coordinates)
    thinned = draws[:, ::2].reshape(-1, draws.shape[-1])
    try:
        values = pointwise_log_likelihood(fit, space.leave(thinned)[0], fitted_rows(fit))
    except isvi.IsviError:
        return "", ""
    tree = arviz_base.from_dict(
        {"log_likelihood": {"y": values.reshape(CHAINS, -1, values.shape[1])}}, dims={"y": ["row"]}
    )
    chains = arviz_stats.loo(tree, pointwise=True, reff=1.0)
    own = fit.loo()
    flag = " (flagged)" if own.warning else ""
    return f"{own.elpd - chains.elpd:+.2f}", f"{(own.elpd - chains.elpd) / chains.se:+.3f}{flag}"


def measure(posterior: Posterior, seed: int = 0) -> list[str]:
    problem = posterior.problem
    fit = isvi.fit(problem.model, problem.rows, seed=seed, progress=False)
    told = fit.diagnose()
    tree = fit.mcmc(DRAWS, CHAINS, seed=seed)
    values = {str(name): np.asarray(tree["posterior"][name]) for name in tree["posterior"].data_vars}
    fitted = fit.gradients // fit.data().num_batches
    passes = fitted + told.passes // 2
    ours = Measured.of(posterior, values, tree["posterior"].attrs["model_gradients"] // fit.data().num_batches + passes)
    draws, leapfrogs = plain_nuts(fit, seed)
    theirs = Measured.of(posterior, named(fit, draws), leapfrogs)
    row: list[Any] = [posterior.short, f"{fitted:,}", told.verdict, *ours.cells, *theirs.cells]
    return [*row, f"{ours.price / theirs.price:.2f}", *leave_one_out(fit, draws)]


def main(
    data: Annotated[Path, typer.Option(help="Folder with one folder per posterior.")],
    only: Annotated[str | None, typer.Option(help="Only posteriors whose names contain this.")] = None,
) -> None:
    """Measure, and write a table."""
    lines = ["# NUTS from a fit, and from nowhere", "", (__doc__ or "").split("\n\n")[1].strip(), ""]
    lines += [f"| {HEAD} |", f"|{' --- |' * len(HEAD.split('|'))}"]
    for posterior in find(data, only):
        try:
            lines.append(f"| {' | '.join(measure(posterior))} |")
        except Exception as error:
            lines.append(f"| {posterior.short} | {type(error).__name__}: {error} |")
        print(lines[-1], flush=True)
        if only is None:
            (Path(__file__).parent / "results" / "handover.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    typer.run(main)
