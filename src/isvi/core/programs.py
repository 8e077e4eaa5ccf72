"""Compiled programs that are kept on disk: a fit that was compiled once, in whatever process, is not compiled again.

It is JAX's persistent cache, switched on. A program is found by all that it computes, so none is ever out of date, and
a seed is not part of it.
"""

import os
from pathlib import Path

import jax
from jax.experimental.compilation_cache import compilation_cache

from isvi.core.errors import ConfigurationError

MOST_BYTES = 10**9
"""Beyond, the oldest are deleted. A fit leaves about a megabyte."""


def cache_folder(of: str) -> Path:
    """Where what is compiled is kept: in ``$ISVI_CACHE``, or in the user's cache folder."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("ISVI_CACHE") or Path(base) / "isvi") / of


def keep_compiled(folder: str | Path | None = None) -> Path:
    """Keep compiled programs on disk, for later fits and later processes. Call it once, before the first fit.

    A small fit then takes less than a second in a new process instead of three. The command line does this by itself.
    Programs are code: choose a folder that only you can write to.

    Args:
        folder: by default the one that JAX was told (``JAX_COMPILATION_CACHE_DIR``), else ``~/.cache/isvi/programs``.

    Returns:
        The folder.
    """
    known: str | None = getattr(jax.config, "jax_compilation_cache_dir", None)
    if folder is None and known:
        return Path(known)
    folder = cache_folder("programs") if folder is None else Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        _delete_oldest(folder)
    except OSError as error:
        raise ConfigurationError(f"Compiled programs cannot be kept in {folder}: {error}.") from None
    if not os.access(folder, os.W_OK):
        raise ConfigurationError(f"Compiled programs cannot be kept in {folder}: it is not yours to write to.")
    jax.config.update("jax_compilation_cache_dir", str(folder))
    # By default JAX keeps what took a second to compile; a fit is dozens of small programs besides.
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    compilation_cache.reset_cache()  # if something was compiled before, JAX has settled that there is none
    return folder


def _delete_oldest(folder: Path) -> None:
    found = sorted(
        (stat.st_mtime, stat.st_size, path) for path in folder.iterdir() if path.is_file() and (stat := path.stat())
    )
    excess = sum(size for _, size, _ in found) - MOST_BYTES
    for _, size, path in found:
        if excess <= 0:
            return
        path.unlink(missing_ok=True)
        excess -= size
