"""Frees storage: takes ledgers off the front of the list, and deletes them.

`LogRetention` decides which ledgers may be deleted now, by the rules of ledger_lifetime_rules.py and the leases. It
reads the settings each time, which follow the topic's policies. As long as these are not known, it allows no deletion,
as one of them might retain the ledgers. `Trimmer` deletes them in three steps, so that a crash leaves nothing that is
never deleted, and nothing is deleted that the list still names:

    1. the ledgers move from the list to `deleting`, by compare-and-set
    2. each is deleted
    3. they leave `deleting`

A broker that opens the topic continues with the ledgers that it finds in `deleting`. Nothing else is ever deleted here:
ledgers that are in no list are left to the deleter of unclaimed ledgers. No bookie has to store anything for this, so a
full disk does not prevent it.

The mark `unsubscribed_up_to` is in the topic's node, with the list of ledgers. It counts as soon as it is raised, so a
trim spares the ledgers that the cursor which is being created does not protect. It is durable before that cursor is.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from itertools import islice, takewhile
from typing import Final

from magnetar_bookie.errors import LedgerError, NoSuchLedger
from magnetar_bookie.ledger.ledger_client import LedgerClient
from magnetar_broker.errors import BrokerError, TopicUnloaded
from magnetar_broker.managed_ledger.ledger_lifetime_rules import (
    NO_RETENTION,
    deletable_by_policy,
    deletable_ledgers,
)
from magnetar_broker.managed_ledger.ledger_lifetime_settings import (
    create_retention_policy,
    create_retention_without_subscription,
)
from magnetar_broker.managed_ledger.ledger_list import ListChange
from magnetar_broker.managed_ledger.log_leases import LogLeases
from magnetar_broker.managed_ledger.topic_node import TopicNode
from magnetar_broker.position import LATEST, Position
from magnetar_broker.settings.managed_ledgers import ManagedLedgerSettings
from magnetar_broker.system_topics import is_events_topic, is_system_topic
from magnetar_metadata.errors import MetadataError
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_wire.clock import Clock

__all__ = ["LogRetention", "Trimmer", "delete_ledgers"]

_log = logging.getLogger(__name__)
# The maximum in one change of the list. A change also deletes the pages that become empty, and the size of a
# transaction is limited.
_LEDGERS_AT_A_TIME: Final = 1000
_DELETED_AT_A_TIME: Final = 16


class LogRetention:
    """Which ledgers of a topic may be deleted now."""

    __slots__ = (
        "_are_policies_known",
        "_clock",
        "_fail",
        "_is_system_topic",
        "_leases",
        "_node",
        "_retains_all",
        "_saved_mark",
        "_settings",
        "find_needed",
    )

    def __init__(
        self,
        node: TopicNode,
        leases: LogLeases,
        settings: ManagedLedgerSettings,
        clock: Clock,
        fail: Callable[[TopicUnloaded], object],
        are_policies_known: Callable[[], bool] = lambda: True,
    ) -> None:
        """`settings`: by the topic's policies, as they change. `are_policies_known`: whether all of them are known."""
        self._node = node
        self._leases = leases
        self._settings = settings
        self._clock = clock
        self._fail = fail
        self._are_policies_known = are_policies_known
        self._is_system_topic = is_system_topic(node.name)
        # Only its owner deletes what it holds, also if that is acknowledged (topic_policies/).
        self._retains_all = is_events_topic(node.name)
        # At most `unsubscribed_up_to` as it is in the node.
        self._saved_mark = node.ledger_list.unsubscribed_up_to
        # Returns the position up to which no internal cursor needs the log; None: there is none.
        self.find_needed: Callable[[], Position | None] = lambda: None

    def deletable(self, acknowledged: Position | None) -> Iterator[int]:
        """Yield the ledgers that a trim may delete now. Durable subscriptions have acknowledged everything up to
        `acknowledged`; None: the topic has none."""
        if self._retains_all or not self._are_policies_known():
            return iter(())
        deletable = self._not_leased(self._not_retained(acknowledged))
        needed = self.find_needed()
        return (
            deletable if needed is None else takewhile(lambda ledger_id: self._ends_up_to(ledger_id, needed), deletable)
        )

    def _ends_up_to(self, ledger_id: int, position: Position) -> bool:
        found = self._node.ledger_list.find(ledger_id)
        return found is not None and Position(ledger_id, found.entries - 1) <= position

    def _not_retained(self, acknowledged: Position | None) -> Iterator[int]:
        ledger_list, now_ms = self._node.ledger_list, self._clock.time_ms()
        if self._is_system_topic:
            return deletable_ledgers(ledger_list, acknowledged, NO_RETENTION, now_ms)
        if (policy := create_retention_policy(self._settings)) is not None:
            return deletable_by_policy(ledger_list, acknowledged, policy, now_ms)
        return deletable_ledgers(
            ledger_list, acknowledged, create_retention_without_subscription(self._settings), now_ms
        )

    def deletable_up_to(self, ledger_id: int) -> Iterator[int]:
        """Yield the closed ledgers up to this one that are not leased, needed or not, retained or not."""
        up_to = Position(ledger_id, LATEST.entry_id)
        return self._not_leased(deletable_ledgers(self._node.ledger_list, up_to, NO_RETENTION, self._clock.time_ms()))

    def _not_leased(self, found: Iterator[int]) -> Iterator[int]:
        return takewhile(lambda ledger_id: not self._leases.protects(ledger_id), found)

    @property
    def retains_acknowledged(self) -> bool:
        """Whether messages are retained that all subscriptions have acknowledged, at least for now: as long as the
        policies are not known, they are."""
        policy = create_retention_policy(self._settings)
        return not self._are_policies_known() or (policy is not None and policy.retains)

    def mark_unsubscribed(self) -> None:
        """Raise the mark to the last ledger. Called where a durable cursor is about to be created and there is none.

        A topic that has a retention policy now is marked, too: the policy may be removed.
        """
        if self._is_system_topic:
            return
        if (
            create_retention_without_subscription(self._settings) != NO_RETENTION
            or create_retention_policy(self._settings) is not None
        ):
            self._node.ledger_list.mark_unsubscribed()

    async def save_mark(self) -> None:
        """Make the mark durable. Called before the cursor is. Raises `BrokerError`."""
        try:
            while (mark := self._node.ledger_list.unsubscribed_up_to) > self._saved_mark:
                await self._node.change(ListChange())
                self._saved_mark = max(self._saved_mark, mark)
        except TopicUnloaded as error:
            self._fail(error)
            raise
        except MetadataError as error:
            text = f"the retention of topic {self._node.name} can't be stored now: {error}; try again"
            raise BrokerError(ErrorCode.METADATA_ERROR, text) from error


class Trimmer:
    """Trims one topic's log."""

    __slots__ = ("_background", "_client", "_fail", "_node", "_trim_in_flight")

    def __init__(self, node: TopicNode, client: LedgerClient, fail: Callable[[TopicUnloaded], object]) -> None:
        self._node = node
        self._client = client
        self._fail = fail
        # Done when the trim in flight is.
        self._trim_in_flight: asyncio.Future[None] | None = None
        self._background: asyncio.Task[None] | None = None

    async def trim(self, deletable: Callable[[], Iterable[int]]) -> bool:
        """Delete the ledgers that `deletable` returns, the first of the list. Return whether the list changed.

        A deletion that fails is logged, and repeated by the next call.
        """
        while self._trim_in_flight is not None:
            await asyncio.wait([self._trim_in_flight])
        done = self._trim_in_flight = asyncio.get_running_loop().create_future()
        before = self._node.ledger_list.trimmed_up_to
        try:
            while await self._take_off(deletable):
                await self._delete()
            await self._delete()
        except TopicUnloaded as error:
            self._fail(error)
            raise
        except (LedgerError, MetadataError) as error:
            _log.warning("Topic %s can't be trimmed now: %s", self._node.name, error)
        finally:
            self._trim_in_flight = None
            done.set_result(None)
        return self._node.ledger_list.trimmed_up_to != before

    async def _take_off(self, deletable: Callable[[], Iterable[int]]) -> bool:
        """Take as many ledgers off the list as fit into one change. Return whether there were any.

        `deletable` is called before each change, in the turn of the event loop in which the change begins. Between two
        changes ledgers are deleted, which takes long if a bookie is down. A subscription that is created or moved back
        in that time needs the ledgers that the list still has. A subscription or a lease that comes later finds them
        deleted.
        """
        await self._node.wait_until_unchanged()
        ledger_list = self._node.ledger_list
        trimmed = list(islice(deletable(), _LEDGERS_AT_A_TIME))
        if trimmed or ledger_list.empty_ledger_id is not None:
            await self._node.change(
                ListChange(trimmed=trimmed[-1] if trimmed else None, empty=ledger_list.empty_ledger_id)
            )
        return bool(trimmed)

    async def _delete(self) -> None:
        deleting = self._node.ledger_list.deleting
        deleted = await delete_ledgers(self._client, list(deleting)) if deleting else []
        if deleted:
            await self._node.change(ListChange(deleted=frozenset(deleted)))

    def finish_soon(self) -> None:
        """Delete, in the background, the ledgers in `deleting`, and the last ledger if it was closed empty."""
        if self._background is None:
            self._background = asyncio.create_task(self._finish())

    async def _finish(self) -> None:
        ledger_list = self._node.ledger_list
        try:
            if ledger_list.empty_ledger_id is not None:
                await self._node.change(ListChange(empty=ledger_list.empty_ledger_id))
            await self._delete()
        except TopicUnloaded as error:
            self._fail(error)
        except (LedgerError, MetadataError) as error:
            _log.warning("Ledgers of topic %s can't be deleted now: %s", self._node.name, error)
        finally:
            self._background = None

    def stop(self) -> None:
        """Stop the background deletion."""
        if self._background is not None:
            self._background.cancel()


async def delete_ledgers(client: LedgerClient, ledger_ids: list[int]) -> list[int]:
    """Delete ledgers, and return those that are deleted for certain. Logs why others are not."""
    deleted: list[int] = []

    async def delete(ledger_id: int) -> None:
        try:
            await client.delete(ledger_id)
        except NoSuchLedger:
            pass  # deleted by an earlier owner or call
        except (LedgerError, MetadataError) as error:
            _log.warning("Ledger %d can't be deleted now: %s", ledger_id, error)
            return
        deleted.append(ledger_id)

    for at in range(0, len(ledger_ids), _DELETED_AT_A_TIME):
        await asyncio.gather(*map(delete, ledger_ids[at : at + _DELETED_AT_A_TIME]))
    return deleted
