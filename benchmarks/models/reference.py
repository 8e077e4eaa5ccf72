"""References: NumPyro's NUTS in double precision, run once, of which means, sds, R-hat and effective numbers are kept.

``python -m benchmarks.models.reference NAME ...`` runs and writes; the others only read.
"""

import json
import math
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.models.case import Case

FOLDER = Path(__file__).parent / "references"
CHAINS = 4
WARM_UP, SAMPLES, TARGET = 1000, 1000, 0.9
WORST_R_HAT = 1.02
FEWEST_EFFECTIVE = 400
"""The mean of the worst entry is then sure to 0.05 sds, a fifth of the bar that results are held to."""
WORST_SD_ERROR = 0.08
"""A third of the bar. Half-Cauchy scales may have no variance, and then no amount of draws tells their sd."""
FIXED_SD = 1e-9
"""Entries of a Cholesky factor above the diagonal, or its first, do not vary."""


@dataclass(frozen=True)
class Reference:
    """What NUTS said: per latent site, arrays of the site's shape."""

    name: str
    latents: Mapping[str, Mapping[str, np.ndarray]]
    divergences: int
    settings: Mapping[str, Any]

    @property
    def worst_r_hat(self) -> float:
        return max(float(np.max(one["r_hat"][moving(one)], initial=0.0)) for one in self.latents.values())

    @property
    def fewest_effective(self) -> float:
        return min(float(np.min(one["effective"][moving(one)], initial=np.inf)) for one in self.latents.values())

    @property
    def converged(self) -> bool:
        """Whether it can be taken as the truth."""
        return self.worst_r_hat <= WORST_R_HAT and self.fewest_effective >= FEWEST_EFFECTIVE

    @property
    def size(self) -> int:
        return sum(int(moving(one).sum()) for one in self.latents.values())


def moving(latent: Mapping[str, np.ndarray]) -> np.ndarray:
    """Entries that are not constant."""
    return np.asarray(latent["sd"] > FIXED_SD * (1 + np.abs(latent["mean"])))


def has_sd(latent: Mapping[str, np.ndarray]) -> np.ndarray:
    """Entries whose sd the draws agree about; where a reference does not say, all."""
    return np.asarray(latent.get("sd_error", 0.0 * latent["sd"]) <= WORST_SD_ERROR)


def run(case: Case, seed: int = 0) -> Reference:
    """NUTS with the case's settings, in double precision."""
    import jax
    import numpyro
    from numpyro.diagnostics import summary
    from numpyro.infer import MCMC, NUTS, init_to_uniform

    numpyro.enable_x64()
    settings = {"warm_up": WARM_UP, "samples": SAMPLES, "target": TARGET, **case.nuts}
    kernel = NUTS(
        case.easier or case.model,
        target_accept_prob=settings["target"],
        dense_mass=settings.get("dense", False),
        max_tree_depth=settings.get("depth", 10),
        init_strategy=settings.get("init", init_to_uniform),
    )
    mcmc = MCMC(
        kernel,
        num_warmup=settings["warm_up"],
        num_samples=settings["samples"],
        num_chains=CHAINS,
        chain_method=settings.get("chains", "sequential"),
        progress_bar=False,
    )
    started = time.perf_counter()
    mcmc.run(jax.random.key(seed), **arguments(case), extra_fields=("diverging", "num_steps"))
    # A site that is deterministic is no latent; mcmc.get_samples() has both.
    latents = latent_sites(case) if case.easier else set(mcmc.last_state.z)
    sites = {name: draws for name, draws in mcmc.get_samples(group_by_chain=True).items() if name in latents}
    fields = mcmc.get_extra_fields()
    told = {
        "chains": CHAINS,
        "warm_up": settings["warm_up"],
        "samples": settings["samples"],
        "target": settings["target"],
        "steps": int(np.sum(fields["num_steps"])),
        "seconds": round(time.perf_counter() - started, 1),
    }
    kept = {}
    for name, draws in sites.items():
        numbers = summary({name: np.asarray(draws, float)}, group_by_chain=True)[name]
        parts = {"mean": "mean", "sd": "std", "r_hat": "r_hat", "effective": "n_eff"}
        kept[name] = {ours: np.asarray(numbers[theirs]) for ours, theirs in parts.items()}
        kept[name]["sd_error"] = relative_error_of_sd(np.asarray(draws, float))
    return Reference(case.name, kept, int(np.sum(fields["diverging"])), told)


def relative_error_of_sd(draws: np.ndarray) -> np.ndarray:
    """By how much the sds of the halves of all chains differ: it does not shrink where there is no variance at all."""
    halves = np.concatenate(np.array_split(draws, 2, axis=1)) if draws.shape[1] % 2 == 0 else draws
    sds = halves.std(axis=1, ddof=1)
    return np.asarray(sds.std(axis=0, ddof=1) / np.maximum(sds.mean(axis=0), 1e-300) / np.sqrt(len(halves)))


def arguments(case: Case) -> dict[str, Any]:
    """The data by name, arrays as JAX arrays."""
    import jax
    import jax.numpy as jnp

    everything = case.data().everything
    return jax.tree.map(lambda leaf: jnp.asarray(leaf) if isinstance(leaf, np.ndarray) else leaf, everything)


def prior_trace(case: Case, data: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """All sites at a draw from the prior; latents whose prior is improper are near zero in unconstrained space. In
    compiled code ``data`` are the arguments, made outside of it."""
    import jax
    from numpyro import handlers
    from numpyro.infer import init_to_sample

    drawn = handlers.substitute(handlers.seed(case.model, jax.random.key(1)), substitute_fn=init_to_sample)
    return dict(handlers.trace(drawn).get_trace(**(arguments(case) if data is None else data)))


def latent_sites(case: Case) -> set[str]:
    """Sample sites without observations and without a sum over their values."""
    return {
        name
        for name, site in prior_trace(case).items()
        if site["type"] == "sample" and not site["is_observed"] and not site["fn"].support.is_discrete
    }


def known(case: Case) -> Reference:
    """From closed forms, in the place of draws: as sure as can be."""
    latents = {
        name: {
            "mean": np.asarray(mean, float),
            "sd": np.asarray(sd, float),
            "r_hat": np.ones_like(mean, float),
            "effective": np.full_like(mean, 1e9, float),
            "sd_error": np.zeros_like(mean, float),
        }
        for name, (mean, sd) in case.exact.items()
    }
    return Reference(case.name, latents, 0, {"chains": 0})


def path(name: str) -> Path:
    return FOLDER / f"{name}.json"


def write(reference: Reference) -> None:
    FOLDER.mkdir(exist_ok=True)
    head = {"name": reference.name, "divergences": reference.divergences, **reference.settings}
    lines = [f'  "{key}": {json.dumps(value)},' for key, value in head.items()]
    lines.append('  "latents": {')
    blocks = []
    for name, numbers in reference.latents.items():
        inner = [f'      "{key}": {json.dumps(_rounded(values))}' for key, values in numbers.items()]
        blocks.append(f"    {json.dumps(name)}: {{\n" + ",\n".join(inner) + "\n    }")
    path(reference.name).write_text("{\n" + "\n".join(lines) + "\n" + ",\n".join(blocks) + "\n  }\n}\n")


def _rounded(values: Any) -> Any:
    """Six digits; what is not a number (the R-hat of a constant) is null."""
    if isinstance(values, np.ndarray):
        return _rounded(values.tolist())
    if isinstance(values, list):
        return [_rounded(value) for value in values]
    return float(f"{values:.6g}") if math.isfinite(values) else None


def read(name: str) -> Reference | None:
    """What was written, or None."""
    if not path(name).exists():
        return None
    told = json.loads(path(name).read_text())
    latents = {
        site: {key: np.asarray(values, float) for key, values in numbers.items()}
        for site, numbers in told.pop("latents").items()
    }
    return Reference(told.pop("name"), latents, told.pop("divergences"), told)


def main(names: list[str]) -> None:
    from benchmarks.models.numpyro import CASES

    for name in names:
        case = CASES[name]
        reference = known(case) if case.exact else run(case)
        write(reference)
        print(
            f"{name}: {reference.size} entries, R-hat {reference.worst_r_hat:.3f}, effective "
            f"{reference.fewest_effective:.0f}, {reference.divergences} divergences, "
            f"{reference.settings.get('seconds', 0)} s"
            f"{'' if reference.converged else '  NOT CONVERGED'}",
            flush=True,
        )


if __name__ == "__main__":
    main(sys.argv[1:])
