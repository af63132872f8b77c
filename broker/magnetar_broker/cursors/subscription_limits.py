"""What a subscription may be called, and how large its properties may be: the limits of what a cursor's node stores.

They apply to each subscription, durable or not, whichever listener it is opened by.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from magnetar_broker.errors import BrokerError
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_wire.path_component import encode_path_component

__all__ = ["DEDUPLICATION_CURSOR", "check_properties", "check_subscription_name", "is_internal_cursor", "measure_name"]

# The cursor with the snapshots of deduplication. Its name is Pulsar's.
DEDUPLICATION_CURSOR: Final = "pulsar.dedup"

_MAX_NAME_BYTES: Final = 255
_MAX_PROPERTIES_BYTES: Final = 65_536
# What a list of nodes has of each, besides its name.
_LISTED_BYTES: Final = 4


def measure_name(name: str) -> int:
    """Return the bytes that a name has in a list of the metadata store."""
    return len(encode_path_component(name)) + _LISTED_BYTES


def is_internal_cursor(name: str) -> bool:
    """Whether the broker has the cursor for itself: it is no subscription, and users don't see it."""
    return name == DEDUPLICATION_CURSOR


def check_subscription_name(name: str) -> None:
    """Raises `BrokerError`."""
    if is_internal_cursor(name):
        raise BrokerError(
            ErrorCode.NOT_ALLOWED, f"{name!r} is a cursor of the broker, not a subscription: use another name"
        )
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        raise BrokerError(
            ErrorCode.INVALID_ARGUMENT, f"invalid subscription name {name!r}: it contains an unpaired surrogate"
        ) from None
    if not 0 < size <= _MAX_NAME_BYTES:
        raise BrokerError(
            ErrorCode.INVALID_ARGUMENT,
            f"a subscription's name can't have {size} bytes: use 1 … {_MAX_NAME_BYTES}",
        )


def check_properties(owner: str, properties: Mapping[str, str]) -> None:
    """Check the properties of a subscription or of a consumer, which `owner` says. Raises `BrokerError`."""
    size = sum(len(key.encode()) + len(value.encode()) for key, value in properties.items())
    if size > _MAX_PROPERTIES_BYTES:
        raise BrokerError(
            ErrorCode.INVALID_ARGUMENT,
            f"the {owner}'s properties have {size} bytes, above the limit of {_MAX_PROPERTIES_BYTES}",
        )
