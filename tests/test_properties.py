"""Whatever the model, the shapes, the batch size, the precision and the constraints: a fit, or a clear refusal."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jax.scipy.stats import norm
from numpyro.distributions import constraints

import isvi

SHAPES = st.lists(st.integers(1, 3), max_size=2).map(tuple)
LATENTS = st.one_of(
    SHAPES.map(lambda shape: isvi.real(*shape)),
    st.builds(lambda shape, via: isvi.positive(*shape, via=via), SHAPES, st.sampled_from(["softplus", "exp"])),
    SHAPES.map(lambda shape: isvi.interval(-2.0, 5.0, *shape)),
    st.builds(lambda shape, last: isvi.simplex(*shape, last), SHAPES, st.integers(2, 4)),
    st.builds(lambda shape, last: isvi.ordered(*shape, last), SHAPES, st.integers(2, 4)),
    st.integers(2, 3).map(lambda size: isvi.constrained(constraints.corr_cholesky, size, size)),
    st.integers(1, 3).map(lambda size: isvi.constrained(constraints.lower_cholesky, size, size)),
    st.just(isvi.constrained(constraints.less_than(-1.0), 2)),
)
MODELS = st.dictionaries(st.sampled_from("abc"), LATENTS, min_size=1, max_size=3)
COLUMNS = st.sampled_from([np.float32, np.float64, np.int32, np.int64, np.uint8, np.bool_])
FAMILIES = st.sampled_from([isvi.MeanField(), isvi.FullRank(), isvi.Block(), isvi.Block(size=2), isvi.Gamma()])
ALGORITHMS = st.sampled_from([None, isvi.SGD(), isvi.ISGD(), isvi.SAG(), isvi.SRA(), isvi.ISAG(latest=2), isvi.Auto()])


def model_of(latents: dict[str, isvi.Latent], has_rows: bool) -> isvi.Model:
    """A prior that pulls everything towards 0, and rows whose mean is the mean of all entries."""

    def log_prior(z):
        return sum(norm.logpdf(value, scale=2.0).sum() for value in z.values())

    def log_likelihood(z, rows):
        centre = jnp.mean(jnp.concatenate([jnp.ravel(value) for value in z.values()]))
        return norm.logpdf(rows["y"].astype(centre.dtype), centre).sum()

    return isvi.Model(latents, log_prior, log_likelihood if has_rows else None)


def check(latents, rows, dtype, batch_size, family, algorithm, x64, seed) -> None:
    data = None
    if rows:
        data = {"y": (3 * np.random.default_rng(seed).normal(size=rows)).clip(0, 200).astype(dtype)}
    with jax.enable_x64(x64):
        model = model_of(latents, bool(rows))
        options = {"family": family, "algorithm": algorithm, "batch_size": batch_size, "seed": seed}
        try:
            fit = isvi.fit(model, data, budget=12, progress=False, **options)
        except isvi.IsviError as error:
            assert len(str(error)) > 30  # noqa: PT017 (either outcome is right; this one must say something)
            return
        draws = fit.sample(7)
        for leaf in jax.tree.leaves(fit.params):
            assert np.isfinite(leaf).all()
        for name, latent in latents.items():
            assert draws[name].shape == (7, *latent.shape)
            assert np.isfinite(draws[name]).all()
        assert fit.gradients <= 12 or fit.gradients == fit.steps * 2
        assert fit.status.kind in ("budget", "converged", "diverged")


PROBLEMS = {
    "latents": MODELS,
    "rows": st.integers(0, 25),
    "dtype": COLUMNS,
    "batch_size": st.one_of(st.none(), st.integers(-1, 30)),
    "family": FAMILIES,
    "algorithm": ALGORITHMS,
    "x64": st.booleans(),
    "seed": st.integers(0, 2**31 - 1),
}
QUIET = {"deadline": None, "suppress_health_check": list(HealthCheck), "derandomize": True, "print_blob": True}


@settings(max_examples=8, **QUIET)
@given(**PROBLEMS)
def test_some_fits(**problem):
    check(**problem)


@pytest.mark.slow
@settings(max_examples=200, **QUIET)
@given(**PROBLEMS)
def test_many_fits(**problem):
    check(**problem)
