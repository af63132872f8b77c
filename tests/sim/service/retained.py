"""What topics retain: without a durable subscription (RET-1), and by a retention policy (RET-2).

Without a policy:
- While an incarnation of a topic never had a durable cursor, a ledger with entries leaves its list only after the
  ledger was closed for the time of retention, by the clock of the broker that removes it.
- When it has had one, this holds for the ledgers up to the mark in its node, for each owner of the topic.

With a policy this holds for all ledgers, and for the policy's time.

Both are checked at the change of the topic's node. A truncated topic is not checked. And nothing is retained for ever:
in the end the first ledger of each log is one that is needed or retained (`find_overdue`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from magnetar_broker.managed_ledger.managed_ledger import ManagedLedger
from magnetar_broker.position import Position
from magnetar_protos import cursor_pb2, ledger_pb2
from magnetar_protos import managed_ledger_pb2 as pb
from tests.sim.invariants.history import Violation
from tests.sim.process import Process
from tests.sim.service.topic_incarnations import of_application

__all__ = ["Retained"]


@dataclass(slots=True)
class _Log:
    incarnation: str
    listed: list[int] = field(default_factory=list)
    mark: int = 0


class Retained:
    def __init__(
        self,
        time_ms: int | None,
        wall_clock_ms: Callable[[Process], int],
        ledger: Callable[[int], ledger_pb2.LedgerMetadata | None],
        look: Callable[[str], None],
        has_policy: bool = False,
    ) -> None:
        """`time_ms`: the retention; None: for ever. `ledger`: returns its metadata in the metadata store. `has_policy`:
        the retention is that of a policy."""
        self._time_ms = time_ms
        self._has_policy = has_policy
        self._wall_clock_ms = wall_clock_ms
        self._ledger = ledger
        self._look = look
        # By full name of a topic or partition.
        self._logs: dict[str, _Log] = {}
        # Cursors' nodes may be seen before their topic's: by topic, incarnations that have had one.
        self._subscribed: dict[tuple[str, str], None] = {}
        # As applications name topics.
        self._truncated: dict[str, None] = {}

    def cursor_changed(self, topic: str, node: cursor_pb2.CursorNode | None) -> None:
        if node is not None:
            self._subscribed[topic, node.incarnation] = None

    def truncating(self, topic: str) -> None:
        self._truncated[of_application(topic)] = None

    def topic_changed(self, topic: str, node: pb.ManagedLedgerNode | None, by: Process) -> None:
        known = self._logs.pop(topic, None)
        if node is None or node.state == pb.DELETING:
            return
        new = [listed.ledger_id for listed in node.ledgers]
        self._logs[topic] = _Log(node.incarnation, new, node.unsubscribed_up_to)
        if known is None or known.incarnation != node.incarnation or of_application(topic) in self._truncated:
            return
        unsubscribed = (topic, node.incarnation) not in self._subscribed
        for ledger_id in known.listed:
            if ledger_id not in new and (self._has_policy or unsubscribed or ledger_id <= known.mark):
                self._may_leave(topic, ledger_id, by)

    def _may_leave(self, topic: str, ledger_id: int, by: Process) -> None:
        metadata = self._ledger(ledger_id)
        if metadata is not None and metadata.state == ledger_pb2.CLOSED and metadata.last_entry_id < 0:
            return
        item = "RET-2" if self._has_policy else "RET-1"
        self._look(item)
        if metadata is None or metadata.state != ledger_pb2.CLOSED:
            raise Violation(item, f"{by.name} takes ledger {ledger_id} off {topic}, and it is not closed")
        age_ms = self._wall_clock_ms(by) - metadata.closed_ms
        if self._time_ms is None or max(0, age_ms) < self._time_ms:
            raise Violation(
                item,
                f"{by.name} takes ledger {ledger_id} off {topic} {age_ms} ms after it was closed: it is retained for "
                f"{self._time_ms} ms, by a policy or since it was written before there was a durable subscription",
            )

    def find_overdue(self, log: ManagedLedger, slowest: Position | None, now_ms: int) -> int | None:
        """Return the first ledger of a log if nothing needs, retains or leases it. `slowest`: all durable subscriptions
        have acknowledged everything up to there; None: there is none."""
        ledger_list = log.ledger_list
        first = ledger_list.ledgers[0] if ledger_list.ledgers else None
        if first is None or not first.is_closed or not first.entries or log.leases.any_active:
            return None
        needed = log.retention.find_needed()
        if any(position is not None and first.last > position for position in (slowest, needed)):
            return None
        is_unsubscribed = slowest is None or first.ledger_id <= ledger_list.unsubscribed_up_to
        time_ms = self._time_ms if self._has_policy or is_unsubscribed else 0
        self._look("RET-3")
        return first.ledger_id if time_ms is not None and now_ms - first.closed_ms >= time_ms else None
