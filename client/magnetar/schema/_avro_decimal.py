"""Avro's decimals, within bounds.

fastavro converts a decimal's bytes in a time that grows with their square: 100 kB take seconds. It also rounds to the
precision of the definition. So definitions are parsed with another logical type instead of `decimal`, which is
registered here.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any, Final

from fastavro.read import LOGICAL_READERS
from fastavro.write import LOGICAL_WRITERS

from magnetar.exceptions import DecodeError

__all__ = ["BOUNDED_DECIMAL", "is_valid_decimal"]

BOUNDED_DECIMAL: Final = "magnetar-decimal"
_MAX_BYTES: Final = 1024
_MAX_SCALE: Final = 1_000_000


def is_valid_decimal(definition: Any) -> bool:
    """Return whether precision and scale are valid. If not, Avro ignores the logical type."""
    precision, scale = definition.get("precision"), definition.get("scale", 0)
    return type(precision) is int and type(scale) is int and 0 <= scale <= precision and 0 < precision <= _MAX_SCALE


def _read(data: bytes, writer: Any, reader: Any = None) -> Decimal:
    if len(data) > _MAX_BYTES:
        raise DecodeError(f"a decimal of {len(data)} bytes: at most {_MAX_BYTES} are allowed")
    unscaled = Decimal(int.from_bytes(data, "big", signed=True))
    sign, digits, _ = unscaled.as_tuple()
    return Decimal((sign, digits, -writer.get("scale", 0)))


for _kind in ("bytes", "fixed"):
    LOGICAL_READERS[f"{_kind}-{BOUNDED_DECIMAL}"] = _read
    LOGICAL_WRITERS[f"{_kind}-{BOUNDED_DECIMAL}"] = LOGICAL_WRITERS[f"{_kind}-decimal"]
