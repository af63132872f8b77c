"""The metrics of a broker, for Prometheus.

The code that counts has plain numbers. At a scrape they are read on the event loop, some topics at a time, and
formatted in a thread, because with many topics that would delay messages.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import Any, Final

from prometheus_client.core import Metric

from magnetar_broker.broker import Broker
from magnetar_broker.http.topic_metrics import TopicMetrics, Totals
from magnetar_broker.server.pulsar.connection import PulsarConnection
from magnetar_broker.settings.administration import MetricsSettings
from magnetar_metadata.store import SessionState
from magnetar_wire.process.metric_families import MetricFamilies, format_exposition

__all__ = ["BrokerMetrics"]

_FAMILIES: Final = MetricFamilies("pulsar_")


class BrokerMetrics:
    def __init__(
        self,
        broker: Broker,
        settings: MetricsSettings,
        cluster: str,
        others: Callable[[], Awaitable[Iterable[Metric]]] | None = None,
    ) -> None:
        """`others` returns the metrics of other parts of this process, for example of a bookie."""
        self._broker = broker
        self._settings = settings
        self._cluster = cluster
        self._others = others
        # One scrape at a time, to limit memory.
        self._scraping = asyncio.Lock()

    async def format(self) -> bytes:
        async with self._scraping:
            max_topics = self._settings.max_topics_in_metrics
            topic_metrics = TopicMetrics(
                self._cluster, max_topics if self._settings.expose_topic_level_metrics_in_prometheus else 0
            )
            session = self._broker.session
            if session is not None:
                await topic_metrics.gather(session.topics.loaded())
            others = await self._others() if self._others is not None else ()
            families = [*self._list_broker_metrics(topic_metrics.totals), *others]
            return await asyncio.to_thread(lambda: format_exposition([*families, *topic_metrics.list_families()]))

    def _list_broker_metrics(self, totals: Totals) -> Iterator[Metric]:
        broker, counters = self._broker, self._broker.counters
        session, connections = broker.session, broker.pulsar_connections
        state = SessionState.LOST if session is None else session.store.session.state
        connected = state is SessionState.CONNECTED
        yield self._gauge(
            "broker_metadata_connected",
            "1: the broker has a session with the metadata store, and is connected.",
            connected,
        )
        yield self._gauge("broker_topics_count", "Loaded topics.", totals.topics)
        yield self._gauge("broker_producers_count", "Connected producers.", totals.producers)
        yield self._gauge("broker_subscriptions_count", "Subscriptions of loaded topics.", totals.subscriptions)
        yield self._gauge("broker_consumers_count", "Connected consumers.", totals.consumers)
        yield self._gauge("broker_storage_size", "Bytes in the ledgers of loaded topics.", totals.storage_bytes)
        yield self._gauge(
            "broker_msg_backlog", "Entries that subscriptions have not acknowledged.", totals.backlog_entries
        )
        yield self._gauge("broker_topics_waiting", "Topics whose publishes wait.", totals.waiting)
        yield self._gauge(
            "broker_subscriptions_blocked",
            "Subscriptions that can't deliver entries of their backlog now.",
            totals.blocked,
        )
        yield self._gauge(
            "broker_subscriptions_damaged",
            "Subscriptions whose cursor is damaged: reset or delete them.",
            totals.damaged,
        )
        yield self._counter(
            "broker_lost_entries", "Entries found lost on all bookies (lower bound).", counters.lost_entries
        )
        yield self._gauge("broker_rate_in", "Messages published per second.", counters.received.messages_per_s)
        yield self._gauge("broker_throughput_in", "Bytes published per second.", counters.received.bytes_per_s)
        yield self._gauge("broker_rate_out", "Messages delivered per second.", counters.delivered.messages_per_s)
        yield self._gauge("broker_throughput_out", "Bytes delivered per second.", counters.delivered.bytes_per_s)
        yield self._counter("broker_in_messages", "Messages published.", counters.received.messages)
        yield self._counter("broker_in_entries", "Entries published.", counters.received.entries)
        yield self._counter("broker_in_bytes", "Bytes published.", counters.received.bytes)
        yield self._counter("broker_out_messages", "Messages delivered.", counters.delivered.messages)
        yield self._counter("broker_out_entries", "Entries delivered.", counters.delivered.entries)
        yield self._counter("broker_out_bytes", "Bytes delivered.", counters.delivered.bytes)
        yield self._counter("broker_refused_entries", "Published entries refused.", counters.refused_entries)
        yield self._counter("broker_lookup", "Lookups.", counters.lookups)
        yield self._counter("broker_lookup_failures", "Lookups that failed.", counters.lookups_failed)
        yield self._counter(
            "lb_lookups_elsewhere", "Lookups of topics that other brokers own.", counters.lookups_elsewhere
        )
        yield self._counter("lb_bundle_claims", "Bundles acquired.", counters.bundle_claims)
        yield self._counter("lb_unload_bundle", "Bundles unloaded gracefully.", counters.bundle_unloads)
        yield self._counter("lb_bundles_split", "Bundles split.", counters.bundle_splits)
        yield self._counter(
            "lb_bundle_take_overs", "Bundles taken over from brokers that stopped.", counters.bundle_take_overs
        )
        yield self._counter(
            "lb_bundles_lost", "Bundles lost to another broker or with the session.", counters.bundles_lost
        )
        yield self._counter("broker_topic_load_failed", "Topic loads that failed.", counters.loads_failed)
        yield self._counter("broker_topic_unloaded", "Topics unloaded.", counters.unloads)
        yield self._counter("broker_leases_lapsed", "Leases of readers that expired.", counters.leases_lapsed)
        yield self._counter(
            "broker_namespace_leases_lapsed",
            "Leases of readers on namespaces that expired, removed by this broker.",
            counters.namespace_leases_lapsed,
        )
        yield _FAMILIES.histogram(
            "broker_publish_latency_seconds",
            "Seconds from the arrival of an entry until its publish is acknowledged.",
            counters.publish_seconds,
        )
        yield _FAMILIES.histogram(
            "broker_entry_size_bytes", "Sizes of published entries in bytes.", counters.entry_bytes
        )
        yield _FAMILIES.histogram("topic_load_seconds", "Seconds to load a topic.", counters.load_seconds)
        yield from self._list_pulsar_metrics(connections)
        if session is not None:
            yield self._gauge("lb_bundles_owned", "Bundles that this broker owns.", len(session.ownership.list_owned()))
            streams = len(session.client_streams) + len(connections)
            yield self._gauge("active_connections", "Streams and connections of clients.", streams)
            yield self._gauge(
                "broker_pending_publish_bytes",
                "Memory of published entries that are not stored yet, in bytes.",
                session.budget.used_bytes,
            )
            cache = session.cache
            yield self._gauge("ml_cache_used_size", "Bytes in the entry cache.", cache.size_bytes)
            yield self._gauge("ml_cache_entries", "Entries in the entry cache.", len(cache))
            yield self._counter("ml_cache_hits", "Entries read from the entry cache.", cache.hits)
            yield self._counter("ml_cache_misses", "Entries that were not in the entry cache.", cache.misses)

    def _list_pulsar_metrics(self, connections: Sequence[PulsarConnection]) -> Iterator[Metric]:
        counters = self._broker.counters
        yield self._gauge("listener_connections", "Connections of Pulsar's binary protocol.", len(connections))
        yield self._gauge(
            "listener_producers",
            "Producers on connections of Pulsar's binary protocol.",
            sum(len(one.handlers.producers.by_id) for one in connections),
        )
        yield self._gauge(
            "listener_consumers",
            "Consumers on connections of Pulsar's binary protocol.",
            sum(len(one.handlers.consumers.by_id) for one in connections),
        )
        yield self._gauge(
            "listener_unfinished_bytes",
            "Bytes of frames of Pulsar's binary protocol that are not received completely.",
            self._broker.pulsar_context.incomplete_frames.bytes,
        )
        yield self._counter(
            "listener_connections_opened",
            "Connections of Pulsar's binary protocol opened.",
            counters.connections_opened,
        )
        yield self._counter(
            "listener_connections_refused",
            "Connections of Pulsar's binary protocol refused, since the limit was reached.",
            counters.connections_refused,
        )

    def _gauge(self, name: str, text: str, value: float) -> Metric:
        return self._add_value(_FAMILIES.gauge(name, text, labels=["cluster"]), value)

    def _counter(self, name: str, text: str, value: float) -> Metric:
        return self._add_value(_FAMILIES.counter(name, text, labels=["cluster"]), value)

    def _add_value(self, family: Any, value: float) -> Metric:
        family.add_metric([self._cluster], value)
        metric: Metric = family
        return metric
