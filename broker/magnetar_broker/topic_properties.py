"""Properties of topics: texts that applications store with a topic, with and without partitions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from magnetar_broker.errors import BrokerError
from magnetar_protos.broker_pb2 import ErrorCode

__all__ = ["check_properties", "decode_properties", "encode_properties"]

# The maximum size of a topic's properties, names and values together.
_MAX_BYTES: Final = 16_384


def check_properties(properties: Mapping[str, str] | Mapping[str, bytes]) -> None:
    """Raise `BrokerError` if the topic's properties are larger than their limit."""
    size = sum(len(name.encode()) + _size(value) for name, value in properties.items())
    if size > _MAX_BYTES:
        raise BrokerError(
            ErrorCode.INVALID_ARGUMENT, f"properties of {size:,} bytes are above the limit of {_MAX_BYTES:,}"
        )


def encode_properties(properties: Mapping[str, str]) -> dict[str, bytes]:
    """Return the properties as the node of a topic without partitions has them."""
    return {name: value.encode() for name, value in properties.items()}


def decode_properties(stored: Mapping[str, bytes]) -> dict[str, str]:
    return {name: value.decode(errors="replace") for name, value in stored.items()}


def _size(value: str | bytes) -> int:
    return len(value) if isinstance(value, bytes) else len(value.encode())
