"""Applies the rules of managed_ledger/retention_rules.py to a topic's log: what may be deleted now, and what is
recorded of it.

The mark `unsubscribed_up_to` is in the topic's node, with the list of ledgers. It counts as soon as it is raised, so a
trim spares the ledgers that the cursor which is being created does not protect. It is durable before that cursor is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import takewhile

from magnetar_broker.errors import BrokerError, TopicUnloaded
from magnetar_broker.managed_ledger.ledger_list import ListChange
from magnetar_broker.managed_ledger.log_leases import LogLeases
from magnetar_broker.managed_ledger.position import LATEST, Position
from magnetar_broker.managed_ledger.retention_rules import NO_RETENTION, RetentionWithoutSubscription, deletable_ledgers
from magnetar_broker.managed_ledger.topic_node import TopicNode
from magnetar_broker.settings.managed_ledgers import ManagedLedgerSettings
from magnetar_broker.system_topics import is_system_topic
from magnetar_metadata.errors import MetadataError
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_wire.clock import Clock

__all__ = ["LogRetention"]


class LogRetention:
    __slots__ = ("_clock", "_give_up", "_leases", "_node", "_retention", "_saved_mark")

    def __init__(
        self,
        node: TopicNode,
        leases: LogLeases,
        settings: ManagedLedgerSettings,
        clock: Clock,
        give_up: Callable[[TopicUnloaded], object],
    ) -> None:
        self._node = node
        self._leases = leases
        self._clock = clock
        self._give_up = give_up
        self._retention = NO_RETENTION if is_system_topic(node.name) else settings.retention_without_subscription
        # At most `unsubscribed_up_to` as it is in the node.
        self._saved_mark = node.ledger_list.unsubscribed_up_to

    def deletable(self, acknowledged: Position | None) -> Iterator[int]:
        """Yield the ledgers that a trim may delete now. Durable subscriptions have acknowledged everything up to
        `acknowledged`; None: the topic has none."""
        return self._not_leased(acknowledged, self._retention)

    def deletable_up_to(self, ledger_id: int) -> Iterator[int]:
        """Yield the closed ledgers up to this one that are not leased, needed or not, retained or not."""
        return self._not_leased(Position(ledger_id, LATEST.entry_id), NO_RETENTION)

    def _not_leased(self, acknowledged: Position | None, retention: RetentionWithoutSubscription) -> Iterator[int]:
        found = deletable_ledgers(self._node.ledger_list, acknowledged, retention, self._clock.time_ms())
        return takewhile(lambda ledger_id: not self._leases.hold(ledger_id), found)

    def mark_unsubscribed(self) -> None:
        """Raise the mark to the last ledger. Called where a durable cursor is about to be created and there is none."""
        if self._retention != NO_RETENTION:
            self._node.ledger_list.mark_unsubscribed()

    async def save_mark(self) -> None:
        """Make the mark durable. Called before the cursor is. Raises `BrokerError`."""
        try:
            while (mark := self._node.ledger_list.unsubscribed_up_to) > self._saved_mark:
                await self._node.change(ListChange())
                self._saved_mark = max(self._saved_mark, mark)
        except TopicUnloaded as error:
            self._give_up(error)
            raise
        except MetadataError as error:
            text = f"the retention of topic {self._node.name} can't be stored now: {error}; try again"
            raise BrokerError(ErrorCode.METADATA_ERROR, text) from error
