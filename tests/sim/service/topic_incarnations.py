"""Topics as their nodes in the metadata store show them: incarnations, ledgers and owners.

One name has one incarnation after another, and each has its ledgers: a ledger id leads to its incarnation, also long
after that was deleted. Only the process whose epoch is in a node changes it (30).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from magnetar_protos import managed_ledger_pb2 as pb
from tests.sim.invariants.history import Violation
from tests.sim.process import Process

__all__ = ["Incarnation", "TopicIncarnations", "of_application", "short"]

_NAMESPACE: Final = "persistent://public/default/"
_PARTITION: Final = re.compile(r"-partition-\d+$")


def short(topic: str) -> str:
    """Return the name without the namespace, which is the same for all."""
    return topic.removeprefix(_NAMESPACE)


def of_application(topic: str) -> str:
    """Return the application's name of the topic: without the partition."""
    return _PARTITION.sub("", short(topic))


@dataclass(slots=True, eq=False)
class Incarnation:
    topic: str
    name: str
    # When its node was there first, when its deletion began, and when its node was deleted; 0: not yet.
    made: int
    dying: int = 0
    # An administrator has begun to delete it: who uses it may hear of that before it is written down.
    doomed: bool = False
    deleted_at: int = 0
    ledgers: list[int] = field(default_factory=list)
    # Those that the node lists.
    listed: tuple[int, ...] = ()
    # The epoch in the node, its process, and since when.
    owner_epoch: bytes = b""
    owner: Process | None = None
    claimed: int = 0

    def __str__(self) -> str:
        return f"{self.topic} ({self.name[:8]})"


class TopicIncarnations:
    def __init__(self, tick: Callable[[], int], look: Callable[[str], None]) -> None:
        self._tick = tick
        self._look = look
        self._now: dict[str, Incarnation] = {}
        self._of_ledger: dict[int, Incarnation] = {}

    def now(self, topic: str) -> Incarnation | None:
        """Return the present incarnation of a topic or partition."""
        return self._now.get(short(topic))

    def all_now(self, topic: str) -> list[Incarnation]:
        """Return those of a topic by the application's name: of each partition, if it has some."""
        return [one for one in self._now.values() if of_application(one.topic) == of_application(topic)]

    def deleting(self, topic: str) -> None:
        for incarnation in self.all_now(topic):
            incarnation.doomed = True

    def of_ledger(self, ledger_id: int) -> Incarnation | None:
        return self._of_ledger.get(ledger_id)

    def listed(self, topic: str) -> tuple[int, ...]:
        """Return the ledgers that its node lists."""
        incarnation = self.now(topic)
        return () if incarnation is None else incarnation.listed

    def changed(self, topic: str, node: pb.ManagedLedgerNode | None, by: Process) -> None:
        topic = short(topic)
        known = self._now.get(topic)
        if known is not None and (node is None or node.incarnation != known.name):
            known.deleted_at = self._tick()
            known.dying = known.dying or known.deleted_at
            del self._now[topic]
            known = None
        if node is None:
            return
        if known is None:
            known = self._now[topic] = Incarnation(topic, node.incarnation, self._tick())
        known.listed = tuple(listed.ledger_id for listed in node.ledgers)
        for listed in node.ledgers:
            if listed.ledger_id not in self._of_ledger:
                self._of_ledger[listed.ledger_id] = known
                known.ledgers.append(listed.ledger_id)
        if node.state == pb.DELETING:
            known.dying = known.dying or self._tick()
            return
        self._look("30")
        if node.owner_epoch != known.owner_epoch:
            known.owner_epoch, known.owner, known.claimed = node.owner_epoch, by, self._tick()
        elif by is not known.owner:
            owner = known.owner.name if known.owner is not None else "nobody"
            raise Violation("30", f"{by.name} changed the ledgers of {known}, which {owner} owns")
