"""Numbers, sizes, booleans and durations as options give them.

Each function reads the option `name` from options with names in lower case, returns the default if it is not given, and
raises InvalidOptions for another kind of value.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from magnetar_spark.errors import InvalidOptions

__all__ = ["parse_boolean", "parse_duration_s", "parse_number", "parse_size"]

_MAX_NUMBER: Final = 2**63 - 1
_MAX_DURATION_S: Final = 7 * 86_400.0
_SIZE: Final = re.compile(r"([0-9]{1,19})\s*([kmgt]?)i?b?", re.IGNORECASE | re.ASCII)
_SUFFIXES: Final = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_DURATION: Final = re.compile(r"([0-9]{1,12})\s*(ms|s|m|h|d)?", re.IGNORECASE | re.ASCII)
_UNITS_S: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}


def parse_number(options: Mapping[str, str], name: str, default: int, maximum: int = _MAX_NUMBER) -> int:
    """Parse a whole number from 1 on."""
    text = options.get(name.lower())
    if text is None:
        return default
    stripped = text.strip()
    if not (stripped.isascii() and stripped.isdigit() and len(stripped) < 20 and 0 < int(stripped) <= maximum):
        raise InvalidOptions(f"the option {name!r} is {text!r:.50}: use a whole number of 1 … {maximum:,}")
    return int(stripped)


def parse_size(options: Mapping[str, str], name: str, default: int, maximum: int = _MAX_NUMBER) -> int:
    """Parse a number of bytes, such as `1048576`, `512k` or `1g`."""
    text = options.get(name.lower())
    if text is None:
        return default
    match = _SIZE.fullmatch(text.strip())
    size = int(match[1]) * _SUFFIXES[match[2].lower()] if match else 0
    if not 0 < size <= maximum:
        raise InvalidOptions(
            f"the option {name!r} is {text!r:.50}: use a number of bytes of 1 … {maximum:,}, such as 1048576, 512k "
            "or 1g"
        )
    return size


def parse_boolean(options: Mapping[str, str], name: str, default: bool) -> bool:
    text = options.get(name.lower())
    if text is None:
        return default
    if text.strip().lower() not in ("true", "false"):
        raise InvalidOptions(f"the option {name!r} is {text!r:.50}: use true or false")
    return text.strip().lower() == "true"


def parse_duration_s(options: Mapping[str, str], name: str, default: float) -> float:
    """Parse a duration, such as `500ms`, `30s`, `15m`, `2h` or `1d`; a number alone is seconds."""
    text = options.get(name.lower())
    if text is None:
        return default
    match = _DURATION.fullmatch(text.strip())
    seconds = int(match[1]) * _UNITS_S[(match[2] or "s").lower()] if match else None
    if seconds is None or seconds > _MAX_DURATION_S:
        raise InvalidOptions(
            f"the option {name!r} is {text!r:.50}: use a duration of up to 7d, such as 500ms, 30s or 15m"
        )
    return seconds
