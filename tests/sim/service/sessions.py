"""Check that brokers stop serving when their metadata session is over (40).

A broker that is notified stops at once. One that isn't stops before the store ends the session, when it has heard
nothing for the timeout: so when the store does, nothing is opened, delivered or stored there any more, until the
broker has another session; it has closed its former one. Its last answers may be in flight for a moment, and a broker
that stood still needs a moment to see that time has passed.

A session that a fault ends at the store, though its owner is heard, is not checked until the owner is notified.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from magnetar_protos.broker_pb2 import ConsumeAnswer, ProduceAnswer
from tests.sim.invariants.history import Violation
from tests.sim.process import Process

if TYPE_CHECKING:
    from magnetar_testing.metadata.store import MemoryStore
    from tests.sim.service.world import ServiceWorld
    from tests.sim.world.metadata import SimulatedMetadata

__all__ = ["Sessions", "watch_session_ends"]

_MOMENT_S: Final = 1.0


class Sessions:
    """A `StreamTap` of the network."""

    def __init__(self, look: Callable[[str], None], now: Callable[[], float]) -> None:
        self.on_violation: Callable[[Violation], object] = lambda violation: None
        self.metadata: SimulatedMetadata | None = None
        self._look = look
        self._now = now

    def sent(self, stream: int, source: Process, target: Process, method: str, message: bytes, *, served: bool) -> None:
        if not served or self.metadata is None or method not in ("produce", "consume"):
            return
        over_at = self.metadata.over.get(source)
        if over_at is None:
            return
        self._look("40")
        since = max(over_at, source.resumed_at)
        if self._now() > since + _MOMENT_S and (what := _served(method, message)):
            self.on_violation(
                Violation(
                    "40", f"{source.name} {what} {self._now() - over_at:.1f} s after its metadata session was over"
                )
            )

    def arrived(
        self, stream: int, source: Process, target: Process, method: str, message: bytes, *, served: bool
    ) -> None: ...

    def taken(self, stream: int, by: Process, method: str, message: bytes, *, served: bool) -> None: ...

    def ended(self, stream: int) -> None: ...


def _served(method: str, message: bytes) -> str:
    if method == "produce":
        produced = ProduceAnswer.FromString(message)
        return "opens a producer" if produced.opened else "stores entries" if produced.receipts else ""
    answer = ConsumeAnswer.FromString(message)
    return "opens a consumer" if answer.opened else "delivers entries" if answer.deliveries else ""


def watch_session_ends(world: ServiceWorld) -> None:
    """Check a moment after each session's end that the broker's use of it is over."""

    def over(process: Process, store: MemoryStore) -> None:
        world.metadata_later(_MOMENT_S, partial(look, process, store))

    def look(process: Process, store: MemoryStore) -> None:
        host = next((host for host in world.brokers if host.process is process), None)
        if host is None or process.dead or process.paused or host.broker is None:
            return
        if process.resumed_at + _MOMENT_S > world.loop.elapsed_s:
            world.metadata_later(_MOMENT_S, partial(look, process, store))
            return
        world.history.look("40")
        session = host.broker.session
        if session is not None and session.store is store:
            world.history.sessions.on_violation(
                Violation("40", f"{host.name} serves, and its metadata session was over {_MOMENT_S} s ago and more")
            )

    world.metadata.on_over = over
