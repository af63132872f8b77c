"""Admin calls on the statistics of this broker, and on the bookies that it knows."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Final

from magnetar_bookie.ledger.ledger_client import LedgerClient
from magnetar_broker.admin.topic_stats import describe_loaded, set_owner
from magnetar_broker.errors import BrokerError
from magnetar_broker.ownership.bundle_ownership import BundleOwnership
from magnetar_broker.topics.topics import Topics
from magnetar_protos import admin_pb2 as pb
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_wire.bundles import BundleRange, bundle_hash
from magnetar_wire.topic_name import NamespaceName

__all__ = ["BrokerStatsCalls"]

# Topics that are described before other tasks run.
_TOPICS_PER_TURN: Final = 20
# Producers and consumers in one answer.
_MAX_CLIENTS: Final = 10_000
# The bundle of topics that a broker serves whichever broker owns theirs.
_NO_BUNDLE: Final = "0x00000000_0xffffffff"


class BrokerStatsCalls:
    def __init__(
        self,
        topics: Topics,
        ownership: BundleOwnership,
        ledgers: LedgerClient,
        describe_broker: Callable[[], pb.BrokerAnswer],
    ) -> None:
        self._topics = topics
        self._ownership = ownership
        self._bookies = ledgers.bookies
        self._describe_broker = describe_broker

    async def broker_topic_stats(self, request: pb.BrokerStatsRequest) -> pb.BrokerTopicStatsAnswer:
        answer = pb.BrokerTopicStatsAnswer()
        left = _MAX_CLIENTS
        async for one in self._describe():
            consumers = sum(len(subscription.consumers) for subscription in one.stats.subscriptions)
            left -= len(one.stats.producers) + consumers
            if left < 0:
                one.stats.ClearField("producers")
                for subscription in one.stats.subscriptions:
                    subscription.ClearField("consumers")
            answer.topics.append(one)
        answer.topics.sort(key=lambda one: (one.namespace, one.bundle, one.stats.topic))
        return answer

    async def load_report(self, request: pb.BrokerStatsRequest) -> pb.LoadReportAnswer:
        broker_id = self._describe_broker().broker_id
        registered = await self._ownership.find_broker(broker_id)
        if registered is None:
            raise BrokerError(ErrorCode.SERVICE_NOT_READY, "the broker is not registered now: try again later")
        loads: dict[tuple[str, str], pb.BundleLoad] = {}
        async for one in self._describe():
            load = loads.setdefault((one.namespace, one.bundle), pb.BundleLoad())
            load.namespace, load.bundle = one.namespace, one.bundle
            _add(load, one.stats)
        return pb.LoadReportAnswer(
            broker=pb.ActiveBroker(
                broker_id=broker_id,
                listeners=registered.listeners,
                http_address=registered.http_address,
                version=registered.version,
                started_ms=registered.started_ms,
                load=registered.load,
            ),
            bundles=[load for _, load in sorted(loads.items())],
        )

    async def _describe(self) -> AsyncIterator[pb.BrokerTopic]:
        """Describe the loaded topics by what is in memory: there may be very many, and some that can't be read."""
        owned: dict[NamespaceName, list[BundleRange]] = {}
        for one in self._ownership.list_owned():
            owned.setdefault(one.namespace, []).append(one.bundle)
        owner = self._describe_broker()
        for number, topic in enumerate(self._topics.loaded(), 1):
            if topic.ended is None:
                stats = describe_loaded(topic, pb.TopicStatsRequest(), explained=False)
                set_owner(stats, owner)
                namespace, topic_hash = topic.name.namespace_name, bundle_hash(topic.name)
                bundle = next((str(one) for one in owned.get(namespace, ()) if topic_hash in one), _NO_BUNDLE)
                yield pb.BrokerTopic(namespace=str(namespace), bundle=bundle, stats=stats)
            if number % _TOPICS_PER_TURN == 0:
                await asyncio.sleep(0)

    async def bookies(self, request: pb.BookiesRequest) -> pb.BookiesAnswer:
        writable = self._bookies.writable()
        answer = pb.BookiesAnswer()
        for bookie_id in self._bookies.registered():
            address = self._bookies.find_address(bookie_id)
            answer.bookies.add(bookie_id=bookie_id, address=address, writable=bookie_id in writable)
        return answer


def _add(load: pb.BundleLoad, stats: pb.TopicStats) -> None:
    load.topics += 1
    load.producers += len(stats.producers)
    load.subscriptions += len(stats.subscriptions)
    load.messages_in_per_s += stats.received.messages_per_s
    load.bytes_in_per_s += stats.received.bytes_per_s
    load.messages_out_per_s += stats.delivered.messages_per_s
    load.bytes_out_per_s += stats.delivered.bytes_per_s
    load.storage_bytes += stats.storage_bytes
    for subscription in stats.subscriptions:
        load.consumers += len(subscription.consumers)
        load.backlog_entries += subscription.backlog_entries
