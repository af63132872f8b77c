"""The versions of topics' schemas: found, added, read and deleted. __init__.py has the theory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from magnetar_broker.schemas.schema_rules import SchemaRules
from magnetar_protos.schema_pb2 import Schema, SchemaVersion
from magnetar_wire.topic_name import TopicName

__all__ = ["RegisteredSchema", "SchemaRegistry"]


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    version: int
    # None: this version marks the deletion of those before it.
    schema: Schema | None
    created_ms: int


class SchemaRegistry:
    """All methods raise `BrokerError`, and take a partition for its topic."""

    async def has_schema(self, topic: TopicName) -> bool:
        """Return whether the topic has a schema that is not deleted. One read of the metadata store, no bookie."""
        raise NotImplementedError

    async def find_latest(self, topic: TopicName) -> RegisteredSchema | None:
        """Return the last version; None: there is none, or it is deleted."""
        raise NotImplementedError

    async def get(self, topic: TopicName, version: int) -> RegisteredSchema:
        """Return a version. NOT_FOUND: the topic does not have it."""
        raise NotImplementedError

    async def list_versions(self, topic: TopicName) -> list[RegisteredSchema]:
        """Return all versions, also those that a deletion marked."""
        raise NotImplementedError

    async def describe(self, topic: TopicName) -> Sequence[SchemaVersion]:
        """Return what the topic's schema node has of each version, also of those that a deletion marked. One read of
        the metadata store, no bookie."""
        raise NotImplementedError

    async def find_version(self, topic: TopicName, schema: Schema) -> int | None:
        """Return the version that has this schema."""
        raise NotImplementedError

    async def register(self, topic: TopicName, schema: Schema, rules: SchemaRules, *, explicit: bool = False) -> int:
        """Return the version of the schema, after adding it if it is none yet.

        INVALID_ARGUMENT, about "schema": it is not valid. INCOMPATIBLE_SCHEMA: the rules refuse it. `explicit`: an
        administrator adds it, so `allow_auto_update` does not count.
        """
        raise NotImplementedError

    async def check_compatible(self, topic: TopicName, schema: Schema, rules: SchemaRules) -> None:
        """Raise INCOMPATIBLE_SCHEMA unless `register` would accept the schema."""
        raise NotImplementedError

    async def check_readable(self, topic: TopicName, schema: Schema, rules: SchemaRules) -> None:
        """Raise INCOMPATIBLE_SCHEMA unless a consumer with this schema may read the topic."""
        raise NotImplementedError

    async def delete(self, topic: TopicName, *, force: bool = False) -> int:
        """Mark all versions as deleted, by a new version, whose number is returned. `force`: remove them."""
        raise NotImplementedError
