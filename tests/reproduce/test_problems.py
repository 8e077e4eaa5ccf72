"""The evaluators of the ELBO, against Monte Carlo, and the optima, against what is known."""

import jax
import numpy as np
import pytest

from reproduce import problems

EXACT = {
    "diagonal Gaussian": lambda: problems.diagonal_gaussian(60, 2, 20),
    "regression": lambda: problems.linear_regression(60, 2, 20),
    "conjugate regression": lambda: problems.conjugate_regression(60, 2, 20),
    "Poisson": lambda: problems.poisson_counts(60, 20),
    "blocks": lambda: problems.blocked_gaussian(4, 2, 30, 10),
}


@pytest.mark.parametrize("name", EXACT)
def test_exact_elbo_is_the_mean_of_log_joint_minus_log_density(name: str) -> None:
    """20,000 draws; within five standard errors: fails by chance once in 1.7 million."""
    problem = EXACT[name]()
    params = problem.start(0)

    @jax.jit
    def differences(key: jax.Array) -> jax.Array:
        draws = problem.approximation.draw(key, params, 20_000)
        log_density = jax.vmap(problem.approximation.log_density, (None, 0))(params, draws).sum(axis=1)
        return problem.target.exact_values(draws, problem.dataset) - log_density

    sample = np.asarray(differences(jax.random.key(0)), float)
    error = sample.std() / np.sqrt(len(sample))
    # Float32 sums of the log joint are good to a few parts in a million.
    assert abs(problem.evaluate(params) - sample.mean()) < 5 * error + 3e-6 * abs(sample.mean())


def test_best_elbo_of_a_conjugate_model_is_the_evidence() -> None:
    """The Gamma posterior is in the family, so the gap closes: Poisson counts have a known evidence."""
    from scipy.special import gammaln

    problem = problems.poisson_counts(60, 20)
    x = problem.data["x"].astype(float)
    evidence = gammaln(1 + x.sum()) - (1 + x.sum()) * np.log(1 + len(x)) - gammaln(x + 1).sum()
    assert problem.best == pytest.approx(evidence, abs=1e-3)
