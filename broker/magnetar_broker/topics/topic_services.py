"""What all topics of one session of the metadata store share, persistent or not."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar

from magnetar_bookie.ledger.ledger_client import LedgerClient
from magnetar_broker.counters import BrokerCounters
from magnetar_broker.cursors.interface import TopicCursors
from magnetar_broker.errors import BrokerError
from magnetar_broker.managed_ledger.interface import TopicLog
from magnetar_broker.schemas.schema_rules import SchemaRules
from magnetar_broker.settings.service import BrokerServiceSettings
from magnetar_broker.topics.dispatch.dispatch_rates import create_broker_limit
from magnetar_broker.topics.live_settings import LiveSettings
from magnetar_broker.topics.rate_limit import RateLimit
from magnetar_broker.topics.subscriptions import Subscriptions
from magnetar_broker.topics.topic import Topic
from magnetar_broker.topics.topic_schemas import SchemaAccess, TopicSchemas
from magnetar_metadata.errors import MetadataError
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_protos.catalog_pb2 import Policies
from magnetar_wire.clock import Clock
from magnetar_wire.randomness import Randomness
from magnetar_wire.topic_name import TopicName

__all__ = ["TopicServices", "make_unfinished_deletion_error"]

T = TypeVar("T", bound=Topic)


@dataclass(frozen=True, slots=True)
class TopicServices:
    client: LedgerClient
    clock: Clock
    randomness: Randomness
    counters: BrokerCounters
    settings: BrokerServiceSettings
    schemas: SchemaAccess
    # The rates of the broker, for all of its topics together.
    publish_limit: RateLimit = field(init=False)
    dispatch_limit: RateLimit = field(init=False)

    def __post_init__(self) -> None:
        settings = self.settings
        publish_limit = RateLimit("the publish rate of the broker", lambda: settings.broker_publish_rate, self.clock)
        object.__setattr__(self, "publish_limit", publish_limit)
        object.__setattr__(self, "dispatch_limit", create_broker_limit(settings, self.clock))

    def create_topic(
        self,
        topic_class: type[T],
        name: TopicName,
        log: TopicLog,
        cursors: TopicCursors,
        subscriptions: Subscriptions,
        live_settings: LiveSettings,
        policies: Policies,
        own_policies: Policies,
    ) -> T:
        """Put a topic together from its parts. `policies`: its namespace's."""
        return topic_class(
            name,
            log,
            cursors,
            subscriptions,
            live_settings,
            self.clock,
            self.randomness,
            self.counters,
            TopicSchemas(name, self.schemas, SchemaRules.of(self.settings, policies, own_policies)),
            self.publish_limit,
        )


def make_unfinished_deletion_error(name: TopicName, error: MetadataError) -> BrokerError:
    text = f"topic {name} may be deleted completely, partly or not at all: delete it again: {error}"
    return BrokerError(ErrorCode.METADATA_ERROR, text)
