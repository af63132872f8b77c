"""Lookups at a named listener."""

from __future__ import annotations

from magnetar_broker.server.grpc import listener_scoped_service
from magnetar_broker.server.grpc.listener_scoped_service import ListenerScopedService
from magnetar_protos import admin_pb2, broker_pb2, catalog_pb2, reading_pb2
from magnetar_protos.broker_pb2 import LookupAnswer, LookupRequest
from magnetar_wire.transport import Peer, Stream
from tests.running import within
from tests.unit.broker.test_broker_daemon import Machine, becomes_ready

LISTENERS = "internal:magnetar://one:6652,external:magnetar://outside:7000"


class Recording:
    """Answers with the request."""

    async def call(self, peer: Peer, method: str, request: bytes) -> bytes:
        return request

    async def stream(self, peer: Peer, method: str, stream: Stream) -> None:
        raise AssertionError("nothing streams here")


def test_every_request_with_a_listeners_name_is_known() -> None:
    known = {kind.DESCRIPTOR.full_name for kind in listener_scoped_service._REQUESTS.values()}
    found = {
        kind.full_name
        for module in (admin_pb2, broker_pb2, catalog_pb2, reading_pb2)
        for kind in module.DESCRIPTOR.message_types_by_name.values()
        if kind.name.endswith("Request") and "listener_name" in kind.fields_by_name
    }
    assert known == found


async def test_the_name_is_filled_in_and_another_one_stays() -> None:
    """OWN-1: a client that names no listener gets addresses of the one that it called."""

    service = ListenerScopedService(Recording(), "external")
    peer: Peer = None  # type: ignore[assignment]
    for method, kind in listener_scoped_service._REQUESTS.items():
        for named, expected in (("", "external"), ("internal", "internal")):
            request = kind(topic="t", listener_name=named)
            received = kind.FromString(await service.call(peer, method, request.SerializeToString()))
            assert received == kind(topic="t", listener_name=expected), method
    assert await service.call(peer, "partitions", b"x") == b"x"


async def test_lookup_returns_the_address_of_the_clients_listener() -> None:
    """OWN-1: by the listener that it called, unless it names another one."""

    machine = Machine()
    await machine.add_bookie()
    async with machine.running(
        advertised_listeners=LISTENERS, bind_addresses="external:magnetar://outside:7000"
    ) as daemon:
        await becomes_ready(daemon)

        async def look_up(at: str, named: str = "") -> str:
            request = LookupRequest(topic="t", listener_name=named).SerializeToString()
            connection = machine.transport.connect(at)
            answer = LookupAnswer.FromString(await within(connection.call("lookup", request, timeout_s=30), "a lookup"))
            await connection.close()
            return answer.address

        assert await look_up("one:6652") == "one:6652"
        assert await look_up("outside:7000") == "outside:7000"
        assert await look_up("outside:7000", "internal") == "one:6652"
        assert await look_up("one:6652", "external") == "outside:7000"
