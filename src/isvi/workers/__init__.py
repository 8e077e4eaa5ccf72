"""Records made elsewhere, on an existing engine. What comes in is how tasks reach workers and answers come back, and
what happens when a worker dies: what the tasks are is told above."""

from isvi.workers.asking import Asked, Asking
from isvi.workers.choosing import chosen_workers
from isvi.workers.crew import Crew, Work, Workers
from isvi.workers.pool import Pool
from isvi.workers.ray import Ray

__all__ = ["Asked", "Asking", "Crew", "Pool", "Ray", "Work", "Workers", "chosen_workers"]
