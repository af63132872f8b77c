"""Who is taken for dead, and who is not, where more than silence has to tell."""

from __future__ import annotations

import asyncio
import socket

import pytest

from magnetar_broker.server.pulsar.keepalive import LifeSigns
from magnetar_broker.server.pulsar.listener import PulsarListener
from magnetar_broker.server.pulsar.options import PulsarOptions
from tests.running import until
from tests.unit.broker.pulsar.pulsar_scene import running_pulsar_broker


class _Slow:
    """A connection whose client says nothing."""

    address = "10.0.0.1:1"
    broken = False
    connected = True

    def __init__(self, *, held: bool = False, waiting_bytes: int = 0) -> None:
        self.held = held
        self.behind = False
        self.waiting_bytes = waiting_bytes
        self.taken_bytes = 0
        self.written: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.written.append(data)

    def abort(self) -> None:
        self.broken = True


@pytest.mark.parametrize(("waiting_bytes", "taken"), [(100, 1), (100, 0), (0, 1)])
async def test_who_takes_what_waits_for_it_lives(waiting_bytes: int, taken: int) -> None:
    """WIRE-1, SUB-1, PRD-11: what nothing waited for may still lie in the machine's buffer, and tells nothing."""
    who = _Slow(waiting_bytes=waiting_bytes)
    signs = LifeSigns(who, PulsarOptions(connection_liveness_check_timeout_millis=50))
    asked = asyncio.ensure_future(signs.lives())
    await until(lambda: bool(who.written), "it is asked")
    who.taken_bytes += taken
    assert await asked == (waiting_bytes > 0 and taken > 0)
    assert who.broken is not await asked


@pytest.mark.parametrize("takes", [True, False])
async def test_who_takes_some_between_looks_is_not_cut_off(takes: bool) -> None:
    """WIRE-1."""
    who = _Slow(waiting_bytes=100)
    signs = LifeSigns(who, PulsarOptions(keep_alive_interval_seconds=1000))
    for _ in range(5):
        who.taken_bytes += takes
        signs._look()
    signs.end()
    assert who.broken is not takes


async def test_one_that_is_not_read_is_asked_all_the_same() -> None:
    """What nobody acknowledges has its connection closed."""
    who = _Slow(held=True)
    signs = LifeSigns(who, PulsarOptions(keep_alive_interval_seconds=1000))
    for _ in range(5):
        signs._look()
    signs.end()
    assert len(who.written) == 5
    assert not who.broken


async def test_a_machine_that_is_gone_is_found_by_the_sockets_own_means() -> None:
    """WIRE-1: where a connection is not read, nothing else would tell."""

    async with running_pulsar_broker() as scene:
        listener = PulsarListener(scene.door, "")
        await listener.listen("127.0.0.1:0")
        host, _, port = listener.address.rpartition(":")
        _, writer = await asyncio.open_connection(host, int(port))
        await until(lambda: bool(listener.connections), "it is accepted")
        [connection] = listener.connections
        assert connection._transport is not None
        accepted = connection._transport.get_extra_info("socket")
        assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 60_000
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 30
        writer.close()
        await writer.wait_closed()
        await listener.close()
