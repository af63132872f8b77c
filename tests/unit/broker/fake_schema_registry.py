"""A registry of schemas in memory. Schemas of one type are compatible; definitions are valid and compared as bytes."""

from __future__ import annotations

import asyncio

from magnetar_broker.errors import BrokerError
from magnetar_broker.schemas.schema_registry import RegisteredSchema, RulesOrReader, SchemaRegistry
from magnetar_broker.schemas.schema_rules import SchemaRules
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_protos.schema_pb2 import Schema
from magnetar_wire.topic_name import TopicName

__all__ = ["FakeSchemaRegistry"]


class FakeSchemaRegistry(SchemaRegistry):
    def __init__(self) -> None:
        # The versions of each topic.
        self.schemas: dict[TopicName, list[Schema]] = {}
        # The rules that consumers were checked by.
        self.readable_by: list[SchemaRules] = []
        # How often it was called.
        self.calls = 0
        # Calls wait for this.
        self.gate = asyncio.Event()
        self.gate.set()

    async def has_schema(self, topic: TopicName) -> bool:
        return bool(await self._versions(topic))

    async def find_latest(self, topic: TopicName) -> RegisteredSchema | None:
        versions = await self._versions(topic)
        return RegisteredSchema(len(versions) - 1, versions[-1], 0) if versions else None

    async def get(self, topic: TopicName, version: int) -> RegisteredSchema:
        versions = await self._versions(topic)
        if version >= len(versions):
            raise BrokerError(ErrorCode.NOT_FOUND, f"topic {topic} has no version {version}")
        return RegisteredSchema(version, versions[version], 0)

    async def register(
        self, topic: TopicName, schema: Schema, rules: RulesOrReader, *, client: str = "", explicit: bool = False
    ) -> int:
        versions = await self._versions(topic)
        for version, known in enumerate(versions):
            if (known.type, known.definition) == (schema.type, schema.definition):
                return version
        if not isinstance(rules, SchemaRules):
            rules = await rules(topic)
        if not rules.allow_auto_update and not explicit:
            raise BrokerError(ErrorCode.INCOMPATIBLE_SCHEMA, "versions are added by administrators only")
        _check_type(versions, schema)
        versions.append(schema)
        return len(versions) - 1

    async def check_readable(self, topic: TopicName, schema: Schema, rules: SchemaRules, *, client: str = "") -> None:
        self.readable_by.append(rules)
        _check_type(await self._versions(topic), schema)

    async def _versions(self, topic: TopicName) -> list[Schema]:
        self.calls += 1
        await self.gate.wait()
        return self.schemas.setdefault(topic.base, [])


def _check_type(versions: list[Schema], schema: Schema) -> None:
    if versions and versions[-1].type != schema.type:
        raise BrokerError(ErrorCode.INCOMPATIBLE_SCHEMA, "the type of the schema differs")
