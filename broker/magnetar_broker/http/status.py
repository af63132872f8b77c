"""What a broker says of itself, for people and tools: the answer of `GET /status`."""

from __future__ import annotations

import os
from typing import Any

from magnetar_broker.broker import Broker
from magnetar_metadata.store import SessionState
from magnetar_wire.process.version import read_version

__all__ = ["status_of"]


def status_of(broker: Broker, http_address: str) -> dict[str, Any]:
    session = broker.session
    state = SessionState.LOST if session is None else session.store.session.state
    topics = [] if session is None else session.topics.loaded()
    return {
        "broker_id": broker.broker_id,
        "version": read_version(),
        "pid": os.getpid(),
        "uptime_s": round(broker.uptime_s, 3),
        "listen_addresses": broker.addresses,
        "advertised_listeners": dict(broker.advertised.listeners),
        "pulsar_listen_addresses": broker.pulsar_addresses,
        "pulsar_advertised_listeners": dict(broker.advertised.pulsar),
        "http_address": http_address,
        "serves": session is not None,
        # What it has to do first; empty: it serves.
        "waits_for": broker.waits_for,
        "session": state.value,
        # That it owns.
        "bundles": 0 if session is None else len(session.ownership.owned()),
        # That are loaded.
        "topics": len(topics),
        "producers": sum(len(topic.producers()) for topic in topics),
        # Of clients: over gRPC, and of Pulsar's protocol.
        "streams": 0 if session is None else session.streams,
        "connections": len(broker.pulsar_connections),
    }
