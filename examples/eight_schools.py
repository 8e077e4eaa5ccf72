"""Eight schools: a hierarchical model with a positive latent, and its posterior as an ArviZ DataTree.

The effect of coaching in eight schools (Rubin 1981), written in the non-centred form, where the posterior is
closest to a Gaussian. All data fit in one batch, so this example is about models, not about speed.
"""

import jax.numpy as jnp
import numpy as np
from jax.scipy.stats import norm

import isvi

EFFECT = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
STANDARD_ERROR = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])


def log_prior(z):
    half_normal_spread = norm.logpdf(z["spread"], scale=10)
    return norm.logpdf(z["mean"], scale=10) + half_normal_spread + jnp.sum(norm.logpdf(z["school"]))


def log_likelihood(z, batch):
    effect = z["mean"] + z["spread"] * z["school"][batch["school"]]
    return jnp.sum(norm.logpdf(batch["effect"], effect, batch["standard_error"]))


def main() -> None:
    model = isvi.Model(
        latents={"mean": isvi.real(), "spread": isvi.positive(), "school": isvi.real(8)},
        log_prior=log_prior,
        log_likelihood=log_likelihood,
    )
    data = {"school": np.arange(8), "effect": EFFECT, "standard_error": STANDARD_ERROR}
    fit = isvi.fit(model, data, seed=0)
    print(fit.summary())
    print("ELBO", fit.elbo(1000))
    print(fit.to_datatree().posterior)


if __name__ == "__main__":
    main()
