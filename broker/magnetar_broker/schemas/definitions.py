"""Definitions of schemas: whether they are valid, and their fingerprints."""

from __future__ import annotations

from magnetar_protos.schema_pb2 import Schema

__all__ = ["check_definition", "fingerprint"]


def check_definition(schema: Schema) -> None:
    """Raise `BrokerError` INVALID_ARGUMENT, about "schema", for a definition that is not one of its type."""
    raise NotImplementedError


def fingerprint(schema: Schema) -> bytes:
    """Return 32 bytes that are equal for schemas that mean the same. The schema is valid."""
    raise NotImplementedError
