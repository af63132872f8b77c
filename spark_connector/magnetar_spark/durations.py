"""Durations as options give them: `500ms`, `30s`, `15m`, `2h`, `1d`; a number alone is seconds."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["parse_duration_s"]

_DURATION: Final = re.compile(r"([0-9]{1,12})\s*(ms|s|m|h|d)?", re.IGNORECASE | re.ASCII)
_UNITS_S: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}


def parse_duration_s(text: str) -> float | None:
    """Return the seconds; None where the text is no duration."""
    match = _DURATION.fullmatch(text.strip())
    return int(match[1]) * _UNITS_S[(match[2] or "s").lower()] if match else None
