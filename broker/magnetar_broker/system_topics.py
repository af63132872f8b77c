"""System topics: users can't create or write them, and lists don't show them by default.

Their names begin with two underscores. Those of the whole cluster are in a namespace of their own.
"""

from __future__ import annotations

from typing import Final

from magnetar_wire.path_component import decode_path_component, encode_path_component
from magnetar_wire.topic_name import NamespaceName, TopicDomain, TopicName

__all__ = ["SYSTEM_NAMESPACE", "SYSTEM_PREFIX", "heartbeat_broker", "heartbeat_topic", "is_system_topic"]

SYSTEM_NAMESPACE: Final = NamespaceName("pulsar", "system")
SYSTEM_PREFIX: Final = "__"
_HEARTBEAT: Final = "__heartbeat-"


def is_system_topic(name: TopicName) -> bool:
    return name.local_name.startswith(SYSTEM_PREFIX) or name.namespace_name == SYSTEM_NAMESPACE


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
