"""Errors a user can meet. Each message says what was expected, what came, and what to do."""


class IsviError(ValueError):
    """Base class: catch this to catch everything that isvi raises on purpose."""


class ModelError(IsviError):
    """The model, its latents or its log densities are not what they must be."""


class StartError(ModelError):
    """The model is not finite where the fit starts."""


class DataError(IsviError):
    """The data cannot be used as they are."""


class ConfigurationError(IsviError):
    """An option, or a combination of options, that cannot work."""


class WorkerError(IsviError):
    """The workers that make records cannot go on: they do not answer, or cannot be started."""


class CheckpointError(IsviError):
    """A checkpoint or a saved fit cannot be used: damaged, or of another run."""


def require(condition: bool, error: type[IsviError], message: str) -> None:
    """Raise ``error(message)`` unless the condition holds."""
    if not condition:
        raise error(message)


def first_line(error: Exception) -> str:
    """What somebody else's error says, in one line and without the full stop."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
