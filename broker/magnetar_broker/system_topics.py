"""System topics: users can't create, write, empty or delete them, and lists don't show them by default.

Their names begin with two underscores, or end as those of Pulsar's topics of pending acknowledgements, for example
orders-billing__transaction_pending_ack. Those of the whole cluster are in a namespace of their own. Users may read
them.

Pulsar has a list of their names instead, and creates any other topic that begins with two underscores. Here all these
names are reserved, so no later system topic meets a user's topic of its name.
"""

from __future__ import annotations

from typing import Final

from magnetar_wire.path_component import decode_path_component, encode_path_component
from magnetar_wire.topic_name import NamespaceName, TopicDomain, TopicName

__all__ = [
    "SYSTEM_NAMESPACE",
    "events_topic",
    "heartbeat_broker",
    "heartbeat_topic",
    "is_events_topic",
    "is_system_name",
    "is_system_topic",
]

SYSTEM_NAMESPACE: Final = NamespaceName("pulsar", "system")
_PREFIX: Final = "__"
_PENDING_ACKNOWLEDGEMENTS: Final = "__transaction_pending_ack"
_EVENTS: Final = "__change_events"
_HEARTBEAT: Final = "__heartbeat-"


def is_system_topic(name: TopicName) -> bool:
    return is_system_name(name.local_name) or name.namespace_name == SYSTEM_NAMESPACE


def is_system_name(local_name: str) -> bool:
    """Return whether a topic with this name is a system topic in any namespace."""
    return local_name.startswith(_PREFIX) or local_name.endswith(_PENDING_ACKNOWLEDGEMENTS)


def events_topic(namespace: NamespaceName) -> TopicName:
    """Return the topic with the policies of the namespace's topics (topic_policies/)."""
    return TopicName(TopicDomain.PERSISTENT, namespace.tenant, namespace.namespace, _EVENTS)


def is_events_topic(name: TopicName) -> bool:
    return name.local_name == _EVENTS and name.is_persistent


def heartbeat_topic(broker_id: str) -> TopicName:
    """Return the topic to which the broker publishes for its health check."""
    local_name = _HEARTBEAT + encode_path_component(broker_id)
    return TopicName(TopicDomain.PERSISTENT, SYSTEM_NAMESPACE.tenant, SYSTEM_NAMESPACE.namespace, local_name)


def heartbeat_broker(name: TopicName) -> str | None:
    """Return the broker whose heartbeat topic it is, and which serves it whichever broker owns its bundle; None: it is
    no heartbeat topic."""
    if not name.local_name.startswith(_HEARTBEAT) or name.namespace_name != SYSTEM_NAMESPACE:
        return None
    try:
        return decode_path_component(name.local_name.removeprefix(_HEARTBEAT))
    except ValueError:
        return None
