"""The definitions that a client retains."""

from __future__ import annotations

from typing import Any

import pytest

from magnetar._connections.schema_cache import SchemaCache, VersionKey
from magnetar_protos.broker_pb2 import SchemaAnswer
from magnetar_protos.schema_pb2 import Schema
from magnetar_wire.schemas import encode_schema_version


class Definitions:
    """Answers for a lookup, with definitions of `size` bytes."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.calls = 0

    async def schema(self, topic: str, version: bytes, incarnation: str) -> SchemaAnswer:
        self.calls += 1
        return SchemaAnswer(schema=Schema(type="AVRO", definition=version + bytes(self.size - 8)))


def key(number: int) -> VersionKey:
    return VersionKey("t", "", encode_schema_version(number))


@pytest.mark.parametrize(("size", "most"), [(8, 1000), (1024 * 1024, 16)])
async def test_the_number_and_the_size_of_definitions_are_limited(size: int, most: int) -> None:
    """That which was not used for longest is dropped."""
    lookup: Any = Definitions(size)
    cache = SchemaCache(lookup)
    for number in range(most):
        await cache.fetch(key(number))
    assert cache.find(key(0)) is not None
    await cache.fetch(key(most))
    assert [number for number in range(most + 1) if cache.find(key(number)) is None] == [1]
    assert (await cache.fetch(key(0))).definition == encode_schema_version(0) + bytes(size - 8)
    assert lookup.calls == most + 1


async def test_a_definition_that_is_larger_than_all_may_be_is_retained_alone() -> None:
    lookup: Any = Definitions(17 * 1024 * 1024)
    cache = SchemaCache(lookup)
    await cache.fetch(key(0))
    assert cache.find(key(0)) is not None
    await cache.fetch(key(1))
    assert cache.find(key(0)) is None
    assert cache.find(key(1)) is not None
