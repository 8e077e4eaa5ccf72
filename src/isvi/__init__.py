"""isvi: variational inference that evaluates your model's gradient as rarely as possible.

Two verbs over one noun::

    record   = estimator.record(key, params, batch)     # expensive: evaluates the model, once
    gradient = estimator.gradient(params, records)      # cheap: never evaluates the model

:func:`isvi.fit` puts everything together; the parts below it are public too.
"""

from importlib.metadata import version

from isvi.algorithms import ISAG, ISGD, SAG, SGD, SRA, Adaptive, FixedSteps, Info, Method, Natural, Random, State, build
from isvi.auto import Auto
from isvi.calibration import Calibration, calibrate
from isvi.checkpoints import Checkpoint
from isvi.core.errors import CheckpointError, ConfigurationError, DataError, IsviError, ModelError, WorkerError
from isvi.core.latents import Latent, constrained, interval, ordered, positive, real, simplex, unit_interval
from isvi.data import Batch, Dataset
from isvi.diagnosis import Diagnosis
from isvi.estimators import Estimator, Reparameterization, ScoreFunction
from isvi.families import (
    Approximation,
    Beta,
    Block,
    Dirichlet,
    FullRank,
    Gamma,
    LogNormal,
    LowRank,
    MeanField,
    StudentT,
    Warped,
    approximate,
)
from isvi.fitting import Callback, MLflow, TensorBoard, fit, resume
from isvi.frontends import from_gradient, from_numpyro, from_pymc, from_stan
from isvi.memory import Record
from isvi.model import Model, Target
from isvi.optim import bound_kl, natural_gradient, scale_by_fisher
from isvi.results import Comparison, ElboEstimate, Fit, History, Status, compare, load
from isvi.workers import Pool, Ray

__version__ = version("isvi")

__all__ = [
    "ISAG",
    "ISGD",
    "SAG",
    "SGD",
    "SRA",
    "Adaptive",
    "Approximation",
    "Auto",
    "Batch",
    "Beta",
    "Block",
    "Calibration",
    "Callback",
    "Checkpoint",
    "CheckpointError",
    "Comparison",
    "ConfigurationError",
    "DataError",
    "Dataset",
    "Diagnosis",
    "Dirichlet",
    "ElboEstimate",
    "Estimator",
    "Fit",
    "FixedSteps",
    "FullRank",
    "Gamma",
    "History",
    "Info",
    "IsviError",
    "Latent",
    "LogNormal",
    "LowRank",
    "MLflow",
    "MeanField",
    "Method",
    "Model",
    "ModelError",
    "Natural",
    "Pool",
    "Random",
    "Ray",
    "Record",
    "Reparameterization",
    "ScoreFunction",
    "State",
    "Status",
    "StudentT",
    "Target",
    "TensorBoard",
    "Warped",
    "WorkerError",
    "approximate",
    "bound_kl",
    "build",
    "calibrate",
    "compare",
    "constrained",
    "fit",
    "from_gradient",
    "from_numpyro",
    "from_pymc",
    "from_stan",
    "interval",
    "load",
    "natural_gradient",
    "ordered",
    "positive",
    "real",
    "resume",
    "scale_by_fisher",
    "simplex",
    "unit_interval",
]
