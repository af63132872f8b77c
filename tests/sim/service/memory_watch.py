"""Check the number of undecided entries that brokers hold against the bounds of their options (66).

The production's own counters are not used: the entries themselves are counted, as they wait in the streams' channels,
with the topics' producers and in the logs' queues. An entry counts as `magnetar_wire.entry_memory` defines.

- **A stream** takes its next message only while its undecided entries are less than
  `max_pending_publish_bytes_per_connection`.
- **A topic** takes entries only while those that it has are less than `max_pending_publish_bytes_per_topic`, and a
  message's as a whole. So it has at most one message's more than that.
- **A log** has at most one entry more than `managed_ledger_max_pending_bytes`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from magnetar_broker.broker_session import BrokerSession
from magnetar_broker.server.grpc.produce_stream import ProduceStream
from magnetar_protos.broker_pb2 import ProduceRequest
from magnetar_wire.frame import decode_frame
from magnetar_wire.transport import MAX_TRANSPORT_BYTES
from tests.sim.invariants.history import Violation
from tests.sim.process import Process

if TYPE_CHECKING:
    from tests.sim.service.world import ServiceWorld

__all__ = ["MemoryWatch", "check_log", "check_stream", "check_topic"]

# Of each entry, besides its bytes; and what a broker puts before a stored one at most.
_OVERHEAD_BYTES: Final = 512
_BROKER_METADATA_BYTES: Final = 64


def check_stream(number: int, undecided_bytes: int, bound_bytes: int) -> None:
    """Check a stream that takes a message."""
    if undecided_bytes >= bound_bytes:
        raise Violation(
            "66", f"stream {number} takes a message, has {undecided_bytes} bytes undecided, and {bound_bytes} are full"
        )


def check_topic(topic: str, undecided_bytes: int, bound_bytes: int, longest_message_bytes: int) -> None:
    if undecided_bytes >= bound_bytes + longest_message_bytes:
        raise Violation(
            "66",
            f"{topic} has taken {undecided_bytes} bytes that are undecided; {bound_bytes} are full, and the longest "
            f"message has {longest_message_bytes}",
        )


def check_log(topic: str, pending_bytes: int, bound_bytes: int, longest_entry_bytes: int) -> None:
    if pending_bytes >= bound_bytes + longest_entry_bytes + _BROKER_METADATA_BYTES:
        raise Violation(
            "66",
            f"the log of {topic} has {pending_bytes} bytes pending; {bound_bytes} are full, and the longest entry has "
            f"{longest_entry_bytes}",
        )


def _memory(sizes: Iterable[int]) -> int:
    return sum(size + _OVERHEAD_BYTES for size in sizes)


class MemoryWatch:
    """A `StreamTap` of the network."""

    def __init__(self, world: ServiceWorld, look: Callable[[str], None]) -> None:
        self.on_violation: Callable[[Violation], object] = lambda violation: None
        self._world = world
        self._look = look
        # Of all entries that were published, and of all messages of them.
        self._longest_entry = 0
        self._longest_message = 0

    def sent(self, *_: object, served: bool) -> None: ...

    def arrived(self, *_: object, served: bool) -> None: ...

    def ended(self, stream: int) -> None: ...

    def taken(self, stream: int, by: Process, method: str, message: bytes, *, served: bool) -> None:
        if method != "produce" or served:
            return
        sizes = [
            len(entry)
            for run in decode_frame(ProduceRequest.FromString(message).frame, max_entry_bytes=MAX_TRANSPORT_BYTES)
            for entry in run.entries
        ]
        broker_session = next((host.session for host in self._world.brokers if host.process is by), None)
        if broker_session is not None:
            try:
                self.check_broker(broker_session)
                if (session := self._world.sessions.producing.get(stream)) is not None:
                    self._check_session(stream, session)
            except Violation as violation:
                self.on_violation(violation)
        self._longest_entry = max([self._longest_entry, *(size + _OVERHEAD_BYTES for size in sizes)])
        self._longest_message = max(self._longest_message, _memory(sizes))

    def _check_session(self, stream: int, session: ProduceStream) -> None:
        self._look("66")
        bound_bytes = self._world.service.options.max_pending_publish_bytes_per_connection
        check_stream(stream, _memory(session.undecided_sizes()), bound_bytes)

    def check_broker(self, session: BrokerSession) -> None:
        """Check all topics of a broker. Raises `Violation`."""
        options = self._world.service.options
        for topic in session.topics.loaded():
            self._look("66")
            name = str(topic.name)
            undecided = _memory(size for one in topic.producers.undecided() for size in one.pending_sizes())
            check_topic(name, undecided, options.max_pending_publish_bytes_per_topic, self._longest_message)
            pending = _memory(topic.managed_ledger.pending_sizes())
            check_log(name, pending, options.managed_ledger_max_pending_bytes, self._longest_entry)
