"""Results as text that any JSON reader takes."""

import json
import math
from typing import Any


def as_json_text(value: Any) -> str:
    """JSON, with null for what is not finite: NaN and Infinity are Python's own, and no JSON."""
    return json.dumps(_finite(value), allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _finite(one) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
