"""Schemas that clients ask for. There is no registry: what is bytes to the broker is taken, and whatever Pulsar would
hold against what the topic had before is refused, since nobody here would."""

from __future__ import annotations

from typing import Final

from magnetar_broker.errors import BrokerError
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_protos.pulsar_pb2 import Schema

__all__ = ["check_schema"]

# Bytes (-1; 0 is none, which most libraries send for them), string, what has one form only (5 to 14 and 16 to 19), and
# whatever the topic has (21, and below -1).
_PLAIN: Final = frozenset((-1, 0, 1, *range(5, 15), *range(16, 20), 21, -2, -3, -4))


def check_schema(schema: Schema | None) -> None:
    """Raises `BrokerError`."""
    if schema is not None and schema.type not in _PLAIN:
        raise BrokerError(
            ErrorCode.UNSUPPORTED,
            f"the broker has no registry of schemas yet, and {schema.name!r:.100} (type {schema.type}) would need one: "
            "send bytes or strings, and encode and decode in the application",
        )
