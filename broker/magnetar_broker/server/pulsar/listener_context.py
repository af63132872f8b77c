"""What a connection needs of the broker, and what there is of it while the broker serves."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Final, Protocol

from magnetar_broker.admin.catalog import Catalog
from magnetar_broker.core.counters import BrokerCounters
from magnetar_broker.errors import TopicUnloaded
from magnetar_broker.options import BrokerOptions
from magnetar_broker.ownership.interface import Ownership
from magnetar_broker.server.grpc.lookup import Finding
from magnetar_broker.server.outbox_budget import OutboxBudget
from magnetar_broker.server.pulsar.incomplete_frames import UnfinishedFrames
from magnetar_broker.server.pulsar.topic_watches import TopicWatches
from magnetar_broker.topic.publish_budget import PublishBudget
from magnetar_broker.topic.topics import Topics
from magnetar_metadata.store import MetadataStore
from magnetar_wire.clock import Clock

__all__ = ["Door", "Serving"]

_READING_SIZES: Final = 16
_LISTS_AT_A_TIME: Final = 4
# Read at a time; of more, a connection would keep others waiting for too long.
_READ_BYTES: Final = 262_144


class Serving(Protocol):
    """The broker with its present session: `BrokerSession`."""

    store: MetadataStore
    topics: Topics
    catalog: Catalog
    finding: Finding
    # Published and not decided, of all clients.
    budget: PublishBudget

    @property
    def ownership(self) -> Ownership: ...


class Door:
    """What all connections share."""

    def __init__(
        self,
        serving: Callable[[], Serving | None],
        options: BrokerOptions,
        clock: Clock,
        counters: BrokerCounters,
        outboxes: OutboxBudget,
    ) -> None:
        self._serving = serving
        # A topic that is served here is looked up with the address that the client came to: nobody has said another,
        # and it listens at all addresses there are. Set before it listens, if at all.
        self.tells_where_they_came = False
        self.options = options
        self.clock = clock
        self.counters = counters
        # What waits to be sent, of all clients.
        self.outboxes = outboxes
        # Where connections read to, one after the other.
        self.read_buffer = memoryview(bytearray(_READ_BYTES))
        # At whatever listener.
        self.connections = 0
        self.connections_by_ip: Counter[str] = Counter()
        # Connections for whose acknowledgements of parts of batches entries are read: so many at a time.
        self.reading_sizes = asyncio.Semaphore(_READING_SIZES)
        self.unfinished = UnfinishedFrames(options.max_unfinished_frames_bytes)
        # Of lists of topics, which may be long, so many are made at a time.
        self.listing = asyncio.Semaphore(_LISTS_AT_A_TIME)
        self.watches = TopicWatches(self.serving, clock, options.topic_list_watch_interval_s)

    def serving(self) -> Serving:
        """Raises `TopicUnloaded` while there is no session: whoever is told looks up again."""
        serving = self._serving()
        if serving is None:
            raise TopicUnloaded("the broker serves nothing at the moment: it starts, ends, or has lost its session")
        return serving
