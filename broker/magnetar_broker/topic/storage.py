"""What makes a topic of its stored parts, and deletes them.

A topic is opened from below: the log, which recovers its last ledger; the cursors in it; the subscriptions on those.
What was opened is abandoned again where a later part can't be, or where whoever asked has gone.
"""

from __future__ import annotations

from collections.abc import Sequence

from magnetar_bookie.client.ledger_client import LedgerClient
from magnetar_broker.core.counters import BrokerCounters
from magnetar_broker.managed_ledger.cursor_options import CursorOptions
from magnetar_broker.managed_ledger.cursor_table import CursorTable
from magnetar_broker.managed_ledger.deletion import delete_topic, topic_exists
from magnetar_broker.managed_ledger.entry_cache import EntryCache
from magnetar_broker.managed_ledger.managed_ledger import ManagedLedger
from magnetar_broker.managed_ledger.options import ManagedLedgerOptions
from magnetar_broker.topic.options import TopicOptions
from magnetar_broker.topic.subscription_options import SubscriptionOptions
from magnetar_broker.topic.subscriptions import Subscriptions
from magnetar_broker.topic.topic import Topic
from magnetar_metadata.store import Change
from magnetar_wire.clock import Clock
from magnetar_wire.randomness import Randomness
from magnetar_wire.topic_name import TopicName

__all__ = ["StoredTopics"]


class StoredTopics:
    """Is the `TopicStorage` of one metadata session."""

    def __init__(
        self,
        client: LedgerClient,
        cache: EntryCache,
        clock: Clock,
        randomness: Randomness,
        counters: BrokerCounters,
        topic_options: TopicOptions,
        ledger_options: ManagedLedgerOptions,
        cursor_options: CursorOptions,
        subscription_options: SubscriptionOptions,
    ) -> None:
        self._client = client
        self._cache = cache
        self._clock = clock
        self._randomness = randomness
        self._counters = counters
        self._topic_options = topic_options
        self._ledger_options = ledger_options
        self._cursor_options = cursor_options
        self._subscription_options = subscription_options

    async def exists(self, name: TopicName) -> bool:
        return await topic_exists(self._client.ledgers.store, name)

    async def open(self, name: TopicName, *, create: bool, along: Sequence[Change]) -> Topic:
        client, clock, randomness = self._client, self._clock, self._randomness
        log = await ManagedLedger.open(
            name, client, self._cache, self._ledger_options, clock, randomness, create=create, along=along
        )
        try:
            cursors = await CursorTable.open(log, client, self._cursor_options, clock, randomness)
        except BaseException:
            log.abandon()
            raise
        subscriptions = Subscriptions(name, log, cursors, self._subscription_options, clock, randomness)
        try:
            await subscriptions.open()
        except BaseException:
            cursors.abandon()
            log.abandon()
            raise
        return Topic(
            name,
            log,
            cursors,
            subscriptions,
            self._topic_options,
            clock,
            randomness,
            self._counters,
            self._ledger_options.managed_ledger_max_pending_bytes,
        )

    async def delete(self, name: TopicName) -> None:
        await delete_topic(name, self._client, self._clock, self._randomness)
