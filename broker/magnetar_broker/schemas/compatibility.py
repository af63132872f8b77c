"""Whether a schema is compatible with earlier versions (SCH-2)."""

from __future__ import annotations

from collections.abc import Sequence

from magnetar_protos.catalog_pb2 import SchemaCompatibility
from magnetar_protos.schema_pb2 import Schema

__all__ = ["check_compatible", "check_readable"]


def check_compatible(schema: Schema, earlier: Sequence[tuple[int, Schema]], strategy: SchemaCompatibility) -> None:
    """Raise `BrokerError` INCOMPATIBLE_SCHEMA, with field and rule, unless the schema may become the next version.

    `earlier`: version numbers and schemas that count, oldest first. Strategies that are not transitive compare with the
    last one only.
    """
    raise NotImplementedError


def check_readable(schema: Schema, earlier: Sequence[tuple[int, Schema]], strategy: SchemaCompatibility) -> None:
    """Raise `BrokerError` INCOMPATIBLE_SCHEMA unless a consumer with this schema may read the topic."""
    raise NotImplementedError
