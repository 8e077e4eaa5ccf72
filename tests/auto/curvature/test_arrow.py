"""The curvature of latents that belong to groups, against the one that made the pairs."""

import jax
import jax.numpy as jnp
import numpy as np

from isvi.auto.curvature.arrow import estimate_arrow
from isvi.auto.curvature.matching import Differences
from isvi.model.grouping import Groups

GROUPS = Groups(shared=3, number=20, widths=(1, 1))
NONE = Differences(jnp.zeros(1), jnp.zeros((1, GROUPS.dim)), jnp.zeros((1, GROUPS.dim)))


def arrow(rng: np.random.Generator, spread: float) -> np.ndarray:
    """The identity and an arrow around it."""
    pattern = np.zeros((GROUPS.dim, GROUPS.dim))
    pattern[:3], pattern[:, :3] = 1, 1
    for members in GROUPS.members:
        pattern[np.ix_(members, members)] = 1
    noise = rng.normal(size=pattern.shape)
    return np.eye(GROUPS.dim) + spread * pattern * (noise + noise.T) / 2


def two_kinds(rng: np.random.Generator, records: int) -> np.ndarray:
    """Of each record, noise in what is shared and noise in the groups, larger by sqrt(2): squares are 1 on average."""
    draws = np.sqrt(2) * rng.choice([-1.0, 1.0], size=(records, 2, GROUPS.dim))
    draws[:, 0, 3:], draws[:, 1, :3] = 0, 0
    return draws


def estimated(draws: np.ndarray, answers: np.ndarray, known: np.ndarray | float = 0.0) -> np.ndarray:
    flat = draws.reshape(-1, GROUPS.dim)
    shares = jnp.full(len(flat), 1 / len(flat))
    pairs = Differences(shares, jnp.asarray(flat, jnp.float32), jnp.asarray(answers.reshape(flat.shape), jnp.float32))
    known = jnp.asarray(np.broadcast_to(known, (GROUPS.dim, GROUPS.dim)), jnp.float32)
    found = jax.jit(lambda pairs, known: estimate_arrow(GROUPS, pairs, NONE, known))(pairs, known)
    root = np.asarray(found.inverse_root, np.float64)
    return np.linalg.inv(root @ root.T)


def test_members_are_the_entries_of_a_group() -> None:
    assert GROUPS.dim == 43
    assert GROUPS.unknowns == 5
    np.testing.assert_array_equal(GROUPS.members[0], [3, 23])
    np.testing.assert_array_equal(GROUPS.members[-1], [22, 42])


def test_mini_batches_that_agree_leave_nothing_to_estimate() -> None:
    """40 records for 43 entries: fewer pairs of a kind than entries. But for the ridge of 1/40, and couplings that are
    shrunk by what rounding takes for noise, the curvature is exact."""
    rng = np.random.default_rng(0)
    curvature, draws = arrow(rng, 0.1), two_kinds(rng, 40)
    np.testing.assert_allclose(estimated(draws, draws @ curvature), curvature, atol=0.02)


def test_a_prior_that_is_known_is_not_estimated() -> None:
    rng = np.random.default_rng(1)
    curvature, draws = arrow(rng, 0.1), two_kinds(rng, 40)
    known = 0.3 * np.eye(GROUPS.dim)
    np.testing.assert_allclose(estimated(draws, draws @ (curvature - known), known), curvature, atol=0.02)


def test_couplings_that_are_noise_do_not_add_up() -> None:
    """Mini-batches differ by arrows with entries of sd 0.35 to 0.5, whose mean is the identity. Of 400 records each of
    120 couplings has an error of 0.35 / sqrt(400) = 0.018; together they would move eigenvalues by 0.018 sqrt(120) =
    0.2. Shrunk, what is left is the blocks' own errors: 0.025 an entry, five of them and more within 0.15."""
    rng = np.random.default_rng(2)
    draws = two_kinds(rng, 400)
    answers = np.stack([one @ arrow(rng, 0.5) for one in draws])
    values = np.linalg.eigvalsh(estimated(draws, answers))
    assert values.min() > 0.85
    assert values.max() < 1.15
