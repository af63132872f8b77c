"""A fake broker and a client of it: on the test's own loop, or synchronous, with the broker on the clients' loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, TypeVar

import magnetar
from magnetar import aio
from magnetar._client_core import ClientCore
from magnetar._options import client_options
from magnetar._threads.event_loop import background
from magnetar_testing.randomness import SeededRandomness
from magnetar_wire.clock import Clock
from magnetar_wire.in_process_transport import InProcessTransport
from magnetar_wire.transport import Transport
from tests.running import until
from tests.unit.client.fake_broker import FakeBroker
from tests.unit.client.lookup_broker import ADDRESS

T = TypeVar("T")
URL = f"magnetar://{ADDRESS}"


@asynccontextmanager
async def scene(
    clock: Clock | None = None, seed: int = 1, **options: Any
) -> AsyncIterator[tuple[FakeBroker, aio.Client]]:
    transport = InProcessTransport(clock)
    broker = await FakeBroker().start(transport)
    client = aio.Client(URL, _transport=transport, _clock=clock, _randomness=SeededRandomness(seed), **options)
    try:
        yield broker, client
    finally:
        client.shutdown()
        await client.close()
        await broker.stop()


def core_of(transport: Transport, *addresses: str, clock: Clock | None = None, **options: Any) -> ClientCore:
    """Return what a client at these addresses consists of, without the client."""
    return ClientCore(
        f"magnetar://{','.join(addresses or (ADDRESS,))}",
        client_options(options),
        asyncio.get_running_loop().call_soon,
        transport=transport,
        clock=clock,
        randomness=SeededRandomness(1),
    )


class SyncScene:
    """The broker is used with `on_loop`."""

    def __init__(self) -> None:
        self.transport = InProcessTransport()
        self.broker = FakeBroker()

    async def _suspend(self) -> None: ...

    def _resume(self) -> None: ...

    def _forked(self) -> None: ...

    def _close_at_exit(self, timeout_s: float) -> None: ...

    def client(self, **options: Any) -> magnetar.Client:
        return magnetar.Client(URL, _transport=self.transport, **options)

    def on_loop(self, call: Callable[[FakeBroker], T]) -> T:
        async def go() -> T:
            return call(self.broker)

        return background.run(go())

    def until(self, condition: Callable[[FakeBroker], bool], what: str) -> None:
        background.run(until(lambda: condition(self.broker), what))

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return background.run(work)


@contextmanager
def sync_scene() -> Iterator[SyncScene]:
    made = SyncScene()
    background.enter(made)
    try:
        made.run(made.broker.start(made.transport))
        yield made
        made.run(made.broker.stop())
    finally:
        background.leave(made)
