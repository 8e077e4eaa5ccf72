"""Exit codes that scripts can rely on."""

from typing import TYPE_CHECKING

from isvi.results.status import Status

if TYPE_CHECKING:
    from isvi.results.fit import Fit

DONE = 0
"""The fit converged or used its budget; the diagnosis is good or usable."""
REFUSED = 1
"""isvi refused something, or the model raised: one message says what."""
USAGE = 2
"""A wrong option or argument."""
DIVERGED = 3
"""The model stopped giving finite numbers; or the result has some that are not."""
POOR = 4
"""``isvi diagnose``: the approximation is poor."""
INTERRUPTED = 130


def exit_code(status: Status) -> int:
    return {"diverged": DIVERGED, "interrupted": INTERRUPTED}.get(status.kind, DONE)


def fit_exit_code(fit: "Fit") -> int:
    """That of its status; but no fit with a number that is not finite is a success."""
    code = exit_code(fit.status)
    return DIVERGED if code == DONE and not fit.finite else code
