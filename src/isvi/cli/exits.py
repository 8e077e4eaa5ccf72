"""Exit codes that scripts can rely on."""

from isvi.fitting.status import Status

DONE = 0
"""The fit converged or used its budget; the diagnosis is good or usable."""
REFUSED = 1
"""isvi refused something, or the model raised: one message says what."""
USAGE = 2
"""A wrong option or argument."""
DIVERGED = 3
POOR = 4
"""``isvi diagnose``: the approximation is poor."""
INTERRUPTED = 130


def exit_code(status: Status) -> int:
    return {"diverged": DIVERGED, "interrupted": INTERRUPTED}.get(status.kind, DONE)
