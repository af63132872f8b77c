"""Options of the listener for Pulsar's protocol. Names are Pulsar's where it has the option."""

from __future__ import annotations

from typing import Final

from pydantic import Field

from magnetar_wire.configuration import Configuration

__all__ = ["HIGH_WATER_BYTES", "PulsarOptions"]

# Of what waits to be written: below that nobody is told when it is taken.
HIGH_WATER_BYTES: Final = 262_144


class PulsarOptions(Configuration):
    # Maximum number of connections of clients of Pulsar's protocol. 0: no limit.
    broker_max_connections: int = Field(default=10_000, ge=0)
    # Maximum number of connections of clients of Pulsar's protocol from one IP address. 0: no limit.
    broker_max_connections_per_ip: int = Field(default=0, ge=0)
    # Seconds without a received command after which a client of Pulsar's protocol is pinged. Its connection is closed
    # if it does not answer within as long again; a connection without CONNECT is closed after this time.
    keep_alive_interval_seconds: float = Field(default=30.0, gt=0)
    # Milliseconds that a client of Pulsar's protocol has to answer a ping when another client requests its producer
    # name or its exclusive subscription. Then its connection is closed.
    connection_liveness_check_timeout_millis: float = Field(default=5_000.0, gt=0)
    # Maximum number of unanswered requests of one connection of Pulsar's protocol. Above it the broker stops reading
    # the connection.
    max_waiting_requests_per_connection: int = Field(default=1_000, gt=0)
    # Memory, in bytes, of the unanswered requests of one connection of Pulsar's protocol. Above it the broker stops
    # reading the connection.
    max_waiting_requests_bytes_per_connection: int = Field(default=1_048_576, gt=0)
    # Memory, in bytes, of the frames that all connections of Pulsar's protocol have received in part. Above it the
    # connection whose frame began first is closed.
    max_unfinished_frames_bytes: int = Field(default=268_435_456, gt=0)
    # Bytes that may wait for one client of Pulsar's protocol besides max_queued_bytes_per_stream. Above the sum the
    # broker stops reading the connection; once max_queued_bytes_of_all_streams is reached, above 262144 bytes.
    max_waiting_answers_bytes: int = Field(default=1_048_576, ge=HIGH_WATER_BYTES)
    # Message ids of one command of Pulsar's protocol that are processed before other connections are served.
    max_message_ids_at_once: int = Field(default=2_000, gt=0)
    # Maximum delay, in seconds, between a change of a namespace's topics and the notification of clients that watch
    # them.
    topic_list_watch_interval_s: float = Field(default=1.0, gt=0)
    # Maximum number of watches of namespaces' topics of one connection of Pulsar's protocol.
    max_topic_watchers_per_connection: int = Field(default=100, gt=0)
    # Maximum length, in characters, of a topic pattern from a client of Pulsar's protocol.
    subscription_pattern_max_length: int = Field(default=1_000, gt=0)
