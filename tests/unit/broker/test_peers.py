"""Connections to other brokers: used again, and closed when there are too many."""

from __future__ import annotations

import asyncio

import pytest

from magnetar_broker.errors import BrokerError, RequestNotStarted
from magnetar_broker.peers import PeerConnections
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_wire.clock import SystemClock
from magnetar_wire.in_process_transport import InProcessTransport
from magnetar_wire.transport import Connection, Peer, Stream
from tests.running import until


class Counted:
    """A transport that knows which connections are open."""

    def __init__(self) -> None:
        self._transport = InProcessTransport(SystemClock())
        self.listen = self._transport.listen
        self.open: list[str] = []
        self.made: list[str] = []

    async def refuses_connections(self, address: str, timeout_s: float) -> bool:
        raise NotImplementedError

    def connect(self, address: str) -> Connection:
        made: Connection = self._transport.connect(address)
        close = made.close
        self.open.append(address)
        self.made.append(address)

        async def closed() -> None:
            self.open.remove(address)
            await close()

        made.close = closed  # type: ignore[method-assign]
        return made


class Other:
    """A broker that answers `hang` when `go_on` is set."""

    def __init__(self) -> None:
        self.go_on = asyncio.Event()
        self.hanging = 0

    async def call(self, peer: Peer, method: str, request: bytes) -> bytes:
        if method == "hang":
            self.hanging += 1
            await self.go_on.wait()
        return request

    async def stream(self, peer: Peer, method: str, stream: Stream) -> None:
        raise AssertionError("peers have calls alone")


async def test_oldest_unused_connection_is_closed_but_none_in_use() -> None:
    """A call in flight is answered, with any number of later calls."""
    transport, other = Counted(), Other()
    for number in range(6):
        await transport.listen(f"b{number}:1", other)
    peers = PeerConnections(transport, max_connections=2)
    hanging = asyncio.create_task(peers.call("b0:1", "hang", b"first", 60))
    await until(lambda: other.hanging == 1, "it hangs")
    for number in range(1, 6):
        assert await peers.call(f"b{number}:1", "any", b"x", 60) == b"x"
    await until(lambda: transport.open == ["b0:1", "b5:1"], "the others are closed")
    assert await peers.call("b5:1", "any", b"y", 60) == b"y"
    assert transport.made.count("b5:1") == 1
    other.go_on.set()
    assert await hanging == b"first"
    assert await peers.call("b1:1", "any", b"z", 60) == b"z"
    await until(lambda: transport.open == ["b5:1", "b1:1"], "the oldest is closed")
    await peers.close()
    assert transport.open == []


async def test_connections_above_the_limit_are_closed_after_use() -> None:
    transport, other = Counted(), Other()
    for number in range(5):
        await transport.listen(f"b{number}:1", other)
    peers = PeerConnections(transport, max_connections=2)
    calls = [asyncio.create_task(peers.call(f"b{number}:1", "hang", b"%d" % number, 60)) for number in range(5)]
    await until(lambda: other.hanging == 5, "all hang")
    assert len(transport.open) == 5
    # A cancelled call leaves nothing behind.
    calls[0].cancel()
    await asyncio.wait([calls[0]])
    other.go_on.set()
    assert await asyncio.gather(*calls[1:]) == [b"1", b"2", b"3", b"4"]
    await until(lambda: len(transport.open) == 2, "three are closed")
    await peers.close()
    assert transport.open == []


async def test_a_broker_that_is_not_there_is_no_leak() -> None:
    transport = Counted()
    peers = PeerConnections(transport, max_connections=3)
    for number in range(20):
        with pytest.raises(RequestNotStarted) as refused:
            await peers.call(f"nowhere-{number}:1", "any", b"", 60)
        assert isinstance(refused.value, BrokerError)
        assert refused.value.code == ErrorCode.SERVICE_NOT_READY
    await until(lambda: len(transport.open) == 3, "the rest is closed")
    await peers.close()
    assert transport.open == []
