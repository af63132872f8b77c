"""The context that both listeners share: the broker's session, its settings, and limits on all clients together."""

from __future__ import annotations

from collections.abc import Callable

from magnetar_broker.broker_session import BrokerSession
from magnetar_broker.concurrency_limit import ConcurrencyLimit
from magnetar_broker.counters import BrokerCounters
from magnetar_broker.errors import BrokerError, TopicUnloaded
from magnetar_broker.server.topic_watches import TopicWatches
from magnetar_broker.settings.service import BrokerServiceSettings
from magnetar_broker.topics.dispatch.delivery_capacity import OutboxBudget
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_wire.clock import Clock

__all__ = ["ServerContext"]


class ServerContext:
    """One object of the broker, for all of its sessions."""

    def __init__(
        self,
        find_session: Callable[[], BrokerSession | None],
        settings: BrokerServiceSettings,
        clock: Clock,
        counters: BrokerCounters,
    ) -> None:
        self._find_session = find_session
        self.settings = settings
        self.clock = clock
        self.counters = counters
        self.outbox_budget = OutboxBudget(settings.max_queued_bytes)
        # Counts lookups, and requests for a topic's partitions, last message or schema, or a namespace's topics, of
        # both protocols. Each may wait for the metadata store, or for a bundle that changes its owner, until its
        # timeout.
        self.lookup_limit = ConcurrencyLimit(lambda: settings.max_concurrent_lookup_request, _refuse_lookup)

        self.topic_watches = TopicWatches(self.get_session, clock, settings.topic_list_watch_interval_seconds)

    def get_session(self) -> BrokerSession:
        """Return the broker's session. Raises `TopicUnloaded` if it has none: clients then look up again."""
        session = self._find_session()
        if session is None:
            raise TopicUnloaded(
                "the broker serves no topics now, because it is starting, closing or has lost its session"
            )
        return session


def _refuse_lookup(maximum: int) -> BrokerError:
    return BrokerError(
        ErrorCode.TOO_MANY_REQUESTS,
        f"{maximum} lookups are in flight at this broker, the maximum of max_concurrent_lookup_request: retry in a "
        "moment",
    )
