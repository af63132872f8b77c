"""The liveness check where silence alone does not decide."""

from __future__ import annotations

import asyncio
import socket
import time

import pytest

from magnetar_broker.server.pulsar import listener as listener_module
from magnetar_broker.server.pulsar.keepalive import Keepalive
from magnetar_broker.server.pulsar.listener import PulsarListener
from magnetar_broker.settings.listeners import PulsarListenerSettings
from magnetar_wire.process.listening_socket import open_listening_socket
from tests.running import until
from tests.unit.broker.pulsar.pulsar_scene import running_pulsar_broker


class _SilentPeer:
    """A client that sends nothing."""

    address = "10.0.0.1:1"
    is_closed = False
    is_connected = True

    def __init__(self, *, is_paused: bool = False, waiting_bytes: int = 0) -> None:
        self.is_paused = is_paused
        self.is_behind = False
        self.waiting_bytes = waiting_bytes
        self.taken_bytes = 0
        self.written: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.written.append(data)

    def abort(self) -> None:
        self.is_closed = True


@pytest.mark.parametrize(("waiting_bytes", "taken"), [(100, 1), (100, 0), (0, 1)])
async def test_client_is_alive_if_it_reads_waiting_bytes(waiting_bytes: int, taken: int) -> None:
    """WIRE-1, SUB-1: if no bytes waited, taken ones may lie in a buffer of the system, and prove nothing."""
    peer = _SilentPeer(waiting_bytes=waiting_bytes)
    keepalive = Keepalive(peer, PulsarListenerSettings(connection_liveness_check_timeout_millis=50))
    alive = asyncio.ensure_future(keepalive.check_alive())
    await until(lambda: bool(peer.written), "it is pinged")
    peer.taken_bytes += taken
    assert await alive == (waiting_bytes > 0 and taken > 0)
    assert peer.is_closed is not await alive


@pytest.mark.parametrize("takes", [True, False])
async def test_client_that_reads_bytes_between_checks_stays_connected(takes: bool) -> None:
    """WIRE-1."""
    peer = _SilentPeer(waiting_bytes=100)
    keepalive = Keepalive(peer, PulsarListenerSettings(keep_alive_interval_seconds=1000))
    for _ in range(5):
        peer.taken_bytes += takes
        keepalive._check()
    keepalive.stop()
    assert peer.is_closed is not takes


async def test_time_in_which_the_broker_stands_still_does_not_count() -> None:
    """WIRE-1: the client has answered, and the broker has not read it yet."""
    peer = _SilentPeer()
    settings = PulsarListenerSettings(connection_liveness_check_timeout_millis=20, keep_alive_interval_seconds=0.05)
    keepalive, loop = Keepalive(peer, settings), asyncio.get_running_loop()
    answers: list[bytes] = []

    def answer() -> None:
        answers.append(b"PONG")
        keepalive.has_received = True
        keepalive.wake()

    def stand_still() -> None:
        time.sleep(0.2)
        loop.call_later(0.001, answer)

    peer.write = lambda data: loop.call_soon(stand_still)  # type: ignore[method-assign,assignment]
    assert await keepalive.check_alive()
    keepalive.has_received = False
    keepalive.start()
    await until(lambda: len(answers) == 2 or peer.is_closed, "its answer is read")
    keepalive.stop()
    assert not peer.is_closed


async def test_a_paused_connection_is_pinged_too() -> None:
    """Bytes that the client's machine does not acknowledge close the connection."""
    peer = _SilentPeer(is_paused=True)
    keepalive = Keepalive(peer, PulsarListenerSettings(keep_alive_interval_seconds=1000))
    for _ in range(5):
        keepalive._check()
    keepalive.stop()
    assert len(peer.written) == 5
    assert not peer.is_closed


async def test_tcp_keepalive_is_enabled_for_accepted_sockets() -> None:
    """WIRE-1: nothing else finds an unreachable client while reading is paused."""

    async with running_pulsar_broker() as scene:
        listener = PulsarListener(scene.context, "")
        await listener.listen("127.0.0.1:0")
        host, _, port = listener.address.rpartition(":")
        _, writer = await asyncio.open_connection(host, int(port))
        await until(lambda: bool(listener.connections), "it is accepted")
        [connection] = listener.connections
        assert connection.transport is not None
        accepted = connection.transport.get_extra_info("socket")
        assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 60_000
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 30
        writer.close()
        await writer.wait_closed()
        await listener.close()


async def test_cancelled_listener_leaves_no_open_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that is shut down while it starts."""
    opened: list[socket.socket] = []

    async def record(address: str) -> socket.socket:
        opened.append(await open_listening_socket(address))
        return opened[-1]

    monkeypatch.setattr(listener_module, "open_listening_socket", record)
    async with running_pulsar_broker() as scene:
        listening = asyncio.create_task(PulsarListener(scene.context, "").listen("127.0.0.1:0"))
        while not opened:  # without a pause: it waits for the turn in which the server begins to serve
            await asyncio.sleep(0)
        listening.cancel()
        assert (await asyncio.wait([listening]))[0].pop().cancelled()
        assert opened[-1].fileno() == -1
