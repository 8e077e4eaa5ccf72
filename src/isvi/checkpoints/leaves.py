"""The arrays of a state as they are written, and back."""

import hashlib
import json
from typing import Any

import jax
import numpy as np


def raw_leaves(tree: Any) -> list[np.ndarray]:
    """Copies of the leaves as real numbers. An optimizer that adds noise may hold a random key, which is numbers
    underneath; one that saves memory a kind of number that files do not know, such as bfloat16: these become bytes."""
    return [_raw(np.array(jax.random.key_data(leaf) if _is_key(leaf) else leaf)) for leaf in jax.tree.leaves(tree)]


def as_before(leaf: np.ndarray, template: Any) -> jax.Array:
    """What was written, as a leaf like this one."""
    if _is_key(template):
        return jax.random.wrap_key_data(jax.numpy.asarray(leaf))
    if leaf.dtype != template.dtype:
        leaf = np.frombuffer(leaf.tobytes(), template.dtype).reshape(template.shape)
    return jax.numpy.asarray(leaf)


def digest_of(leaves: list[np.ndarray], notes: dict[str, Any]) -> str:
    """Of arrays and notes."""
    digest = hashlib.sha256(json.dumps(notes, sort_keys=True).encode())
    for leaf in leaves:
        digest.update(f"{leaf.dtype}{leaf.shape}".encode())
        digest.update(np.ascontiguousarray(leaf).data)
    return digest.hexdigest()


def _raw(leaf: np.ndarray) -> np.ndarray:
    return leaf if leaf.dtype.kind in "fiub" else np.frombuffer(leaf.tobytes(), np.uint8)


def _is_key(leaf: Any) -> bool:
    return jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)
