"""The default method, whole: approach, memories, curvature, trust, stopping. A further kind of memory is one more file,
beside ``batches`` and ``whole``, on the phases that all share."""

from isvi.auto.auto import Auto

__all__ = ["Auto"]
