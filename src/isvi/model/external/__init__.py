"""Models that JAX cannot trace: a Python callable that gives a log density and its gradient.

The callable is spoken to from the host, once per record, with NumPy arrays in double precision. What is known in
JAX stays in JAX: the constraints with their Jacobians, and a log prior if one was given.
"""

from isvi.model.external.call import External
from isvi.model.external.model import ExternalModel, no_log_prior
from isvi.model.external.target import ExternalTarget

__all__ = ["External", "ExternalModel", "ExternalTarget", "no_log_prior"]
