"""isvi: variational inference that evaluates your model's gradient as rarely as possible.

Two verbs over one noun::

    record   = estimator.record(key, params, batch)     # expensive: evaluates the model, once
    gradient = estimator.gradient(params, records)      # cheap: never evaluates the model

:func:`isvi.fit` puts everything together; the parts below it are public too. Where to look:

- ``isvi.fit``, ``isvi.Fit``: the way in, and what comes out
- ``fit.diagnose()``: whether to trust it; ``isvi.cite(fit)``: what to cite
- the docs, ``docs/index.md`` in the sources or the site of ``make docs``: start, how to choose, guides, a gallery
- ``isvi --help``: the command line; ``isvi demo``: 327,000 flights
"""

from importlib.metadata import version

from isvi.algorithms import ISAG, ISGD, SAG, SGD, SRA, Adaptive, FixedSteps, Info, Method, Natural, Random, State, build
from isvi.auto import Auto
from isvi.calibration import Calibration, calibrate
from isvi.checkpoints import Checkpoint
from isvi.core.errors import CheckpointError, ConfigurationError, DataError, IsviError, ModelError, WorkerError
from isvi.core.latents import Latent, constrained, interval, ordered, positive, real, simplex, unit_interval
from isvi.core.programs import keep_compiled
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
    Nested,
    StudentT,
    Warped,
    approximate,
)
from isvi.fitting import Callback, MLflow, TensorBoard, fit, resume, with_workers
from isvi.frontends import from_gradient, from_numpyro, from_pymc, from_stan
from isvi.memory import Record
from isvi.model import Model, Target
from isvi.optim import bound_kl, natural_gradient, scale_by_fisher
from isvi.report.citations import cite
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
    "Nested",
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
    "cite",
    "compare",
    "constrained",
    "fit",
    "from_gradient",
    "from_numpyro",
    "from_pymc",
    "from_stan",
    "interval",
    "keep_compiled",
    "load",
    "natural_gradient",
    "ordered",
    "positive",
    "real",
    "resume",
    "scale_by_fisher",
    "simplex",
    "unit_interval",
    "with_workers",
]
