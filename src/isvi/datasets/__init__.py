"""Real data with a model and a known answer, for the demo and the benchmarks. One file per data set; nothing that a fit
needs."""

from isvi.datasets.flights import Flights, load_flights
from isvi.datasets.logistic import LogisticRegression

__all__ = ["Flights", "LogisticRegression", "load_flights"]
