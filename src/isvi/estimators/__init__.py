"""Estimators of the ELBO's gradient: two verbs, ``record`` (expensive) and ``gradient`` (cheap), and the weights
between them. A further estimator is one more file; when to make a record is an algorithm's question."""

from isvi.estimators.base import Estimator, EstimatorOptions
from isvi.estimators.reparameterization import Reparameterization
from isvi.estimators.score_function import ScoreFunction

__all__ = ["Estimator", "EstimatorOptions", "Reparameterization", "ScoreFunction"]
