"""Can a fit be trusted? Evidence about it, and a verdict in words. What comes in looks at a finished fit from outside,
and changes nothing."""

from isvi.diagnosis.diagnosis import Diagnosis, diagnose

__all__ = ["Diagnosis", "diagnose"]
