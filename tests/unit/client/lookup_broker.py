"""The common part of the fake brokers: lookups, partitions, and streams that tests break."""

from __future__ import annotations

import asyncio
from typing import Any, Self

from magnetar_protos.broker_pb2 import (
    ErrorCode,
    LookupAnswer,
    LookupRequest,
    PartitionsAnswer,
    PartitionsRequest,
    Problem,
    SchemaAnswer,
    SchemaRequest,
)
from magnetar_protos.schema_pb2 import Schema
from magnetar_wire.in_process_transport import InProcessTransport
from magnetar_wire.schemas import decode_schema_version, encode_schema_version
from magnetar_wire.transport import Code, Peer, Refusal, Stream

__all__ = ["ADDRESS", "LookupBroker"]

ADDRESS = "broker:6652"


class LookupBroker:
    """`await LookupBroker.start(transport)`; subclasses serve streams, and answer further calls."""

    def __init__(self, address: str = ADDRESS) -> None:
        self.address = address
        # The address of the topics' owner, for lookups.
        self.owner = address
        # The owners of topics that have another one. Brokers may share this.
        self.owners: dict[str, str] = {}
        self.partitioned: dict[str, int] = {}
        # The errors of topics that can't be opened or looked up.
        self.problems: dict[str, ErrorCode] = {}
        # The versions of topics' schemas.
        self.schemas: dict[str, list[Schema]] = {}
        # Cleared: schemas can't be read.
        self.has_registry = asyncio.Event()
        self.has_registry.set()
        # The methods that were called.
        self.calls: list[str] = []
        # The listener that each lookup named.
        self.listener_names: list[str] = []
        # Cleared: streams get no answers; calls get none.
        self.answering, self.answering_calls = asyncio.Event(), asyncio.Event()
        self.answering.set()
        self.answering_calls.set()
        # The transport on which the broker was started.
        self.transport: Any = None
        self._streams: list[Stream] = []
        self._listener: Any = None

    async def start(self, transport: InProcessTransport) -> Self:
        self.transport = transport
        self._listener = await transport.listen(self.address, self)
        return self

    async def stop(self) -> None:
        """Break all streams, and refuse connections until the broker is started again."""
        await self._listener.close()

    def break_streams(self) -> None:
        for stream in list(self._streams):
            stream.cancel()

    def problem(self, topic: str) -> Problem | None:
        code = self.problems.get(topic)
        return None if code is None else Problem(code=code, text=f"{topic}: {ErrorCode.Name(code)}")

    async def call(self, peer: Peer, method: str, request: bytes) -> bytes:
        self.calls.append(method)
        await self.answering_calls.wait()
        if method == "lookup":
            lookup = LookupRequest.FromString(request)
            self.listener_names.append(lookup.listener_name)
            address = self.owners.get(lookup.topic, self.owner)
            return LookupAnswer(problem=self.problem(lookup.topic), address=address).SerializeToString()
        if method == "partitions":
            topic = PartitionsRequest.FromString(request).topic
            count = self.partitioned.get(topic, 0)
            return PartitionsAnswer(problem=self.problem(topic), partitions=count).SerializeToString()
        if method == "schema":
            if not self.has_registry.is_set():
                problem = Problem(code=ErrorCode.METADATA_ERROR, text="the registry is away")
                return SchemaAnswer(problem=problem).SerializeToString()
            return self._find_schema(SchemaRequest.FromString(request)).SerializeToString()
        return self.answer_call(method, request)

    def _find_schema(self, request: SchemaRequest) -> SchemaAnswer:
        versions = self.schemas.get(request.topic, [])
        latest = len(versions) - 1
        version = decode_schema_version(request.schema_version) if request.schema_version else max(latest, 0)
        if version >= len(versions):
            problem = Problem(code=ErrorCode.NOT_FOUND, text=f"no version {version}")
            return SchemaAnswer(problem=problem)
        return SchemaAnswer(schema=versions[version], schema_version=request.schema_version)

    def add_schema(self, topic: str, schema: Schema) -> bytes:
        """Return the version of a schema, after adding it if it is none yet."""
        versions = self.schemas.setdefault(topic, [])
        if schema not in versions:
            versions.append(schema)
        return encode_schema_version(versions.index(schema))

    def answer_call(self, method: str, request: bytes) -> bytes:
        """Answer a call other than `lookup` and `partitions`."""
        raise Refusal(Code.UNIMPLEMENTED, method)

    async def stream(self, peer: Peer, method: str, stream: Stream) -> None:
        self._streams.append(stream)
        try:
            await self.serve_stream(method, stream)
        finally:
            self._streams.remove(stream)

    async def serve_stream(self, method: str, stream: Stream) -> None:
        raise Refusal(Code.UNIMPLEMENTED, method)
