"""Write JSON in one form only, so that equal values have equal text. Pure."""

from __future__ import annotations

import json
from typing import Any


def canonical_json(value: Any) -> str:
    """Return JSON on one line, without spaces, with sorted keys."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
