"""The nemesis stays within its limits, and the proxy does as it is set."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from magnetar_testing.randomness import SeededRandomness
from tests.faults.nemesis import Kind, Round, next_round
from tests.faults.proxy import Proxy
from tests.running import until, within

BOOKIES = ["b1", "b2", "b3", "b4"]
EVERYTHING = frozenset(Kind)


def _rounds(seed: int, allowed: frozenset[Kind] = EVERYTHING) -> list[Round]:
    chance = SeededRandomness(seed)
    return [next_round(chance, BOOKIES, ["c1", "c2"], allowed) for _ in range(300)]


def test_seed_determines_the_faults_and_their_times() -> None:
    assert _rounds(1) == _rounds(1)
    assert _rounds(1) != _rounds(2)


def test_tolerable_rounds_hit_one_bookie_and_others_may_hit_all() -> None:
    targets = [(one.borne, sum(injection.target in BOOKIES for injection in one.injections)) for one in _rounds(3)]
    assert {count for borne, count in targets if borne} == {1}
    assert {count for borne, count in targets if not borne} == {1, 2, 3, 4}
    # In an ambush what one bookie got dies with it, and with all who could repeat it.
    ambushes = [
        one for one in _rounds(3) if sum(injection.kind is Kind.KILL_WRITER for injection in one.injections) == 2
    ]
    assert any(Kind.LOSE_REQUESTS in {injection.kind for injection in one.injections} for one in ambushes)
    assert {injection.kind for one in _rounds(3) for injection in one.injections} == EVERYTHING


def test_only_allowed_faults_are_injected() -> None:
    allowed = frozenset({Kind.KILL, Kind.KILL_WRITER})
    assert {injection.kind for one in _rounds(4, allowed) for injection in one.injections} == allowed


class _Ends:
    """A client and a server with the proxy between them."""

    def __init__(self, proxy: Proxy) -> None:
        self.proxy = proxy
        self.arrived = b""
        self.ended = asyncio.Event()
        self.server: asyncio.StreamWriter | None = None

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.server = writer
        with contextlib.suppress(OSError):
            while data := await reader.read(100):
                self.arrived += data
        self.ended.set()
        writer.close()

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        host, _, port = self.proxy.address.rpartition(":")
        return await asyncio.open_connection(host, int(port))


@pytest.mark.parametrize("how", ["loses", "holds", "cuts"])
async def test_the_proxy_loses_holds_and_cuts(how: str) -> None:
    """What was lost never comes, nor what follows it on that connection; what was held does."""
    proxy = Proxy("127.0.0.1", 1)
    ends = _Ends(proxy)
    server = await asyncio.start_server(ends.serve, "127.0.0.1", 0)
    proxy.target = server.sockets[0].getsockname()[:2]
    async with proxy:
        reader, writer = await ends.connect()
        writer.write(b"first ")
        await until(lambda: ends.arrived == b"first ", "it is let through")
        if how == "cuts":
            proxy.cut_after = 3
            writer.write(b"second")
            await within(ends.ended.wait(), "the end of the connection")
            assert ends.arrived == b"first sec"
        elif how == "holds":
            proxy.holds_requests = True
            writer.write(b"second")
            assert ends.server is not None
            ends.server.write(b"answer")  # the other way is open
            assert await within(reader.readexactly(6), "the answer") == b"answer"
            assert ends.arrived == b"first "
            proxy.heal()
            await until(lambda: ends.arrived == b"first second", "what was held arrives")
        else:
            proxy.loses_requests = True
            writer.write(b"second")
            await until(lambda: proxy.lost == 6, "it is lost")
            proxy.loses_requests = False
            writer.write(b"third")
            await until(lambda: proxy.lost == 11, "so is what follows")
            proxy.heal()
            await within(ends.ended.wait(), "the end of the connection")
            assert ends.arrived == b"first "
        writer.close()
    server.close()
