"""A synchronous client whose broker runs on the loop that the process' synchronous clients share."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import magnetar
from magnetar import InitialPosition
from magnetar._threads.event_loop import background
from magnetar_wire.in_process_transport import InProcessTransport
from tests.unit.client.consume_scene import ADDRESS, MemoryBroker

__all__ = ["EARLIEST", "LONG_MS", "SyncConsumeScene", "ctrl_c_interrupts", "sync_consume_scene", "wait_until"]

EARLIEST: Any = {"initial_position": InitialPosition.Earliest}
LONG_MS = 60_000

T = TypeVar("T")


class SyncConsumeScene:
    def __init__(self, client: magnetar.Client, transport: InProcessTransport) -> None:
        self.client = client
        self.transport = transport
        self.broker = MemoryBroker()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run it on the broker's loop."""
        return background.run(work)

    def on_loop(self, call: Callable[[MemoryBroker], T]) -> T:
        """Call it on the broker's loop."""

        async def go() -> T:
            return call(self.broker)

        return self.run(go())

    def publish(self, *payloads: bytes, topic: str = "t") -> None:
        """Store one entry with these messages."""
        self.on_loop(lambda broker: broker.topic(topic).publish(*payloads))

    def publish_each(self, count: int, topic: str = "t") -> None:
        """Store an entry for each number below `count`."""
        self.on_loop(lambda broker: [broker.topic(topic).publish(b"%d" % number) for number in range(count)])


@contextmanager
def sync_consume_scene(**options: Any) -> Iterator[SyncConsumeScene]:
    """`options` are those of the client."""
    transport = InProcessTransport()
    with magnetar.Client(f"magnetar://{ADDRESS}", _transport=transport, **options) as client:
        client._get_core()
        scene = SyncConsumeScene(client, transport)
        scene.run(scene.broker.start(transport))
        yield scene


@contextmanager
def ctrl_c_interrupts() -> Iterator[None]:
    """Handle SIGINT as on a terminal. A shell has its background processes ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def wait_until(condition: Callable[[], Any], what: str) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, f"in vain: {what}"
        time.sleep(0.005)
