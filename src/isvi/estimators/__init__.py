"""Estimators of the ELBO's gradient: two verbs, ``record`` (expensive) and ``gradient`` (cheap)."""

from isvi.estimators.base import Estimator, EstimatorOptions
from isvi.estimators.reparameterization import Reparameterization
from isvi.estimators.score_function import ScoreFunction

__all__ = ["Estimator", "EstimatorOptions", "Reparameterization", "ScoreFunction"]
