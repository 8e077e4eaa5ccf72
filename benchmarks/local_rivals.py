"""Other tools on the mixed models: lme4 and glmmTMB in R, and NumPyro's AutoNormal over all latents."""

import os
import resource
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.local_problems import SLOPES, Problem
from benchmarks.local_reference import reported

TIMEOUT = 600

SCRIPT = """
suppressMessages(library({package}))
d <- read.csv("{file}"); d$group <- factor(d$group)
start <- proc.time()
fit <- {call}
taken <- proc.time() - start
{extract}
cat("\\nRESULT", sum(taken[1:2]), taken[3], b, attr(v, "stddev"), r[lower.tri(r)], {converged}, "\\n")
"""
EXTRACT = {
    "lme4": 'b <- fixef(fit); v <- VarCorr(fit)$group; r <- attr(v, "correlation")',
    "glmmTMB": 'b <- fixef(fit)$cond; v <- VarCorr(fit)$cond$group; r <- attr(v, "correlation")',
}
CONVERGED = {
    "lme4": "as.integer(is.null(fit@optinfo$conv$lme4$messages))",
    "glmmTMB": "as.integer(fit$fit$convergence == 0)",
}
FAMILIES = {"logistic": "binomial", "Poisson": "poisson", "linear": "gaussian"}


class Answer(NamedTuple):
    """Means (or maxima) of the reported numbers, what they cost, and whether the tool says that it converged."""

    values: np.ndarray | None
    cpu: float
    seconds: float
    note: str


def installed() -> bool:
    """Whether R is there, with both packages."""
    if shutil.which("Rscript") is None:
        return False
    found = subprocess.run(["Rscript", "-e", "library(lme4); library(glmmTMB)"], capture_output=True, check=False)
    return found.returncode == 0


def in_r(package: str, problem: Problem) -> Answer:
    """Maximum likelihood with Laplace's approximation, which is what both use unless they are told otherwise."""
    columns = problem.columns()
    table = np.column_stack([columns["y"], columns["group"], columns["x"]])
    family = FAMILIES[problem.kind]
    call = f"glmmTMB({problem.formula}, d, family = {family})"
    if package == "lme4":
        linear = f"lmer({problem.formula}, d, REML = FALSE)"
        call = linear if family == "gaussian" else f"glmer({problem.formula}, d, family = {family})"
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "rows.csv"
        header = ",".join(["y", "group", *(f"x{number + 1}" for number in range(SLOPES))])
        np.savetxt(file, table, delimiter=",", header=header, comments="")
        script = SCRIPT.format(
            package=package, file=file, call=call, extract=EXTRACT[package], converged=CONVERGED[package]
        )
        try:
            run = subprocess.run(
                ["Rscript", "-e", script], capture_output=True, text=True, check=False, timeout=TIMEOUT
            )
        except subprocess.TimeoutExpired:
            return Answer(None, np.nan, TIMEOUT, f"stopped after {TIMEOUT} s")
    found = [line for line in run.stdout.splitlines() if line.startswith("RESULT")]
    if not found:
        return Answer(None, np.nan, np.nan, run.stderr.strip().splitlines()[-1] if run.stderr else "failed")
    numbers = np.array([float(word) for word in found[0].split()[1:]])
    return Answer(numbers[2:-1], numbers[0], numbers[1], "" if numbers[-1] else "did not converge")


def auto_normal(problem: Problem, rate: float, steps: int) -> Answer:
    """Mean field over the global latents and all effects, non-centred, on all rows in every step."""
    import numpyro
    import numpyro.distributions as dist
    import optax
    from numpyro.infer import SVI, Trace_ELBO
    from numpyro.infer.autoguide import AutoNormal

    columns = {name: jnp.asarray(column) for name, column in problem.columns().items()}

    def model() -> None:
        z = {
            "a": numpyro.sample("a", dist.Normal(0, 2)),
            "b": numpyro.sample("b", dist.Normal(0, 2).expand([SLOPES]).to_event(1)),
            "tau": numpyro.sample("tau", dist.HalfNormal(2).expand([problem.effects]).to_event(1)),
        }
        if problem.effects > 1:
            z["L"] = numpyro.sample("L", dist.LKJCholesky(problem.effects, 1.0))
        if problem.kind == "linear":
            z["sigma"] = numpyro.sample("sigma", dist.HalfNormal(2))
        noise = numpyro.sample("noise", dist.Normal().expand([problem.groups, problem.effects]).to_event(2))
        factor = z["tau"][:, None] * z["L"] if "L" in z else z["tau"][:, None]
        u = (noise @ factor.T)[columns["group"]]
        rows = {"x": columns["x"], "y": columns["y"]}
        likelihood = jax.vmap(lambda u, row: problem.log_row({**z, "u": u}, row))(u, rows)
        numpyro.factor("rows", likelihood.sum())

    started, cpu = time.perf_counter(), cpu_seconds()
    guide = AutoNormal(model)
    svi = SVI(model, guide, optax.adam(optax.cosine_decay_schedule(rate, steps)), Trace_ELBO())
    result = svi.run(jax.random.key(0), steps, progress_bar=False)
    draws = guide.sample_posterior(jax.random.key(1), result.params, sample_shape=(2_000,))
    values = reported(draws)
    return Answer(values.mean(axis=0), cpu_seconds() - cpu, time.perf_counter() - started, f"Adam {rate:g}")


def cpu_seconds() -> float:
    """Of this process, its threads included."""
    return sum(os.times()[:2])


def peak_megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
