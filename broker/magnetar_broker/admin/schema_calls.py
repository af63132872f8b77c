"""Admin calls on the schemas of topics. Any broker carries them out: schemas/__init__.py explains why it may.

Administration sees a schema as Pulsar shows it: versions that a deletion marked are not found, except among those that
`schema_metadata` lists.

A schema belongs to an existing topic. So an upload creates a topic that does not exist, if first use by a client would
create it. In Pulsar, an upload stores the schema without the topic.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from magnetar_broker.admin.calling_client import find_calling_client
from magnetar_broker.admin.map_bounded import map_bounded
from magnetar_broker.admin.names import parse_topic_name
from magnetar_broker.admin.owner_rpc import OwnerRpc
from magnetar_broker.admin.topic_calls import check_not_system_topic
from magnetar_broker.catalog.catalog import Catalog
from magnetar_broker.errors import BrokerError
from magnetar_broker.schemas.schema_registry import RegisteredSchema, SchemaRegistry
from magnetar_broker.schemas.schema_rules import SchemaRules
from magnetar_broker.topics.topic_schemas import run_bounded
from magnetar_protos import admin_pb2 as pb
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_protos.schema_pb2 import Schema, SchemaVersion
from magnetar_wire.topic_name import TopicName

__all__ = ["MAX_WHOLE_BYTES", "PAGE_BYTES", "SchemaCalls"]

# Of the definitions in one answer, to which the last one is added: the transport allows some megabytes.
PAGE_BYTES: Final = 1_048_576
# Of those in an answer with all versions.
MAX_WHOLE_BYTES: Final = 8 * PAGE_BYTES


class SchemaCalls:
    def __init__(
        self,
        catalog: Catalog,
        schemas: SchemaRegistry,
        owner_rpc: OwnerRpc,
        read_rules: Callable[[TopicName], Awaitable[SchemaRules]],
    ) -> None:
        """`read_rules` returns a topic's rules by its policies as they are now, or raises `BrokerError`."""
        self._catalog = catalog
        self._schemas = schemas
        self._owner_rpc = owner_rpc
        self._read_rules = read_rules

    async def schema(self, request: pb.TopicSchemaRequest) -> pb.TopicSchemaAnswer:
        name = _parse(request.topic)
        if request.HasField("version"):
            return pb.TopicSchemaAnswer(schema=_make_answer(await self._schemas.get(name, request.version)))
        found = await self._schemas.find_latest(name)
        if found is None:
            raise BrokerError(ErrorCode.NOT_FOUND, f"{name} has no schema")
        return pb.TopicSchemaAnswer(schema=_make_answer(found))

    async def schemas(self, request: pb.TopicSchemasRequest) -> pb.TopicSchemasAnswer:
        name = _parse(request.topic)
        versions = (await self._schemas.find_node(name)).list_live()
        left = [one for one in versions if not request.HasField("after") or one.version > request.after]
        page = left if request.whole else _cut_page(left)
        if sum(one.stored_bytes for one in page) > MAX_WHOLE_BYTES:
            raise BrokerError(
                ErrorCode.MESSAGE_TOO_BIG,
                f"the versions of the schema of {name} have more than {MAX_WHOLE_BYTES:,} bytes together: read them "
                "one by one, or over gRPC",
            )

        async def read(version: SchemaVersion) -> list[pb.TopicSchema]:
            found: list[pb.TopicSchema] = []
            with _ignore(ErrorCode.NOT_FOUND):  # it was deleted a moment ago
                found.append(_make_answer(await self._schemas.get(name, version.version)))
            return found

        answers = await map_bounded(page, read)
        return pb.TopicSchemasAnswer(schemas=[one for found in answers for one in found], more=len(page) < len(left))

    async def upload_schema(self, request: pb.SchemaDefinitionRequest) -> pb.SchemaVersionAnswer:
        name = _parse_with_schema(request)
        check_not_system_topic(name)
        try:
            version = await self._register(name, request.schema)
        except BrokerError as error:
            if error.code != ErrorCode.TOPIC_NOT_FOUND:
                raise
            # The schema is valid: otherwise the topic would not be created.
            await self._create_topic(parse_topic_name(request.topic))
            version = await self._register(name, request.schema)
        return pb.SchemaVersionAnswer(version=version)

    async def _register(self, name: TopicName, schema: Schema) -> int:
        register, client = self._schemas.register, find_calling_client()
        return await run_bounded(name, lambda: register(name, schema, self._read_rules, client=client, explicit=True))

    async def check_schema(self, request: pb.SchemaDefinitionRequest) -> pb.SchemaCheckAnswer:
        name = _parse_with_schema(request)
        rules, client = await self._read_rules(name), find_calling_client()
        check = self._schemas.check_compatible
        try:
            await run_bounded(name, lambda: check(name, request.schema, rules, client=client))
        except BrokerError as error:
            if error.code != ErrorCode.INCOMPATIBLE_SCHEMA:
                raise
            return pb.SchemaCheckAnswer(reason=str(error), strategy=rules.compatibility)
        return pb.SchemaCheckAnswer(is_compatible=True, strategy=rules.compatibility)

    async def find_schema_version(self, request: pb.SchemaDefinitionRequest) -> pb.SchemaVersionAnswer:
        name = _parse_with_schema(request)
        find, client = self._schemas.find_version, find_calling_client()
        version = await run_bounded(name, lambda: find(name, request.schema, client=client))
        return pb.SchemaVersionAnswer(version=version)

    async def delete_schema(self, request: pb.DeleteSchemaRequest) -> pb.SchemaVersionAnswer:
        name = _parse(request.topic)
        check_not_system_topic(name)
        version = await self._schemas.delete(name, force=request.force)
        return pb.SchemaVersionAnswer(version=None if request.force else version)

    async def schema_metadata(self, request: pb.SchemaMetadataRequest) -> pb.SchemaMetadataAnswer:
        versions = await self._schemas.describe(_parse(request.topic))
        return pb.SchemaMetadataAnswer(
            versions=[
                pb.StoredSchemaVersion(version=one.version, ledger_id=one.ledger_id or None, created_ms=one.created_ms)
                for one in versions
            ]
        )

    async def _create_topic(self, name: TopicName) -> None:
        """Create the topic if it does not exist, and first use would create it. Raises `BrokerError`."""
        if await self._catalog.resolve_partitions(name, create=True) or name.is_partition:
            return
        if await self._catalog.get_topic_state(name) is not None:
            return
        with _ignore(ErrorCode.ALREADY_EXISTS):
            request = pb.TopicRequest(topic=str(name))
            await self._owner_rpc.call_topic_owner(name, "create_topic", request, repeat=True)


def _parse(text: str) -> TopicName:
    """Return the name of the topic; of a partition, its topic's. Raises `BrokerError`."""
    return parse_topic_name(text).base


def _parse_with_schema(request: pb.SchemaDefinitionRequest) -> TopicName:
    if not request.HasField("schema"):
        raise BrokerError(ErrorCode.INVALID_ARGUMENT, "the schema is missing", "schema")
    return _parse(request.topic)


def _cut_page(versions: Sequence[SchemaVersion]) -> Sequence[SchemaVersion]:
    """Return the first ones, up to the one that fills a page."""
    size_bytes = 0
    for number, one in enumerate(versions, 1):
        size_bytes += one.stored_bytes
        if size_bytes >= PAGE_BYTES:
            return versions[:number]
    return versions


def _make_answer(found: RegisteredSchema) -> pb.TopicSchema:
    return pb.TopicSchema(version=found.version, schema=found.schema, created_ms=found.created_ms)


@contextmanager
def _ignore(code: ErrorCode) -> Iterator[None]:
    try:
        yield
    except BrokerError as error:
        if error.code != code:
            raise
