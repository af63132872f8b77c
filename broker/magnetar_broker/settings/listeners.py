"""Settings of what clients connect to: gRPC, the listener for Pulsar's protocol, lookups."""

from __future__ import annotations

from typing import Final

from pydantic import field_validator

from magnetar_wire.configuration import Configuration
from magnetar_wire.grpc_transport.settings import GrpcSettings
from magnetar_wire.process.addresses import check_address
from magnetar_wire.settings import MAX_COUNT, Subject, change_default, setting

__all__ = [
    "HIGH_WATER_BYTES",
    "BrokerGrpcSettings",
    "LookupSettings",
    "PulsarAddressSettings",
    "PulsarListenerSettings",
]

# A connection of Pulsar's protocol whose unwritten bytes are below this is not notified when they are written.
HIGH_WATER_BYTES: Final = 262_144
_MANY_CLIENTS: Final = "a broker has more clients than a bookie"


class BrokerGrpcSettings(GrpcSettings):
    """How a broker's gRPC differs from a bookie's: each of its many clients has a connection with three streams."""

    grpc_max_connections: int = change_default(GrpcSettings, "grpc_max_connections", 4_096, because=_MANY_CLIENTS)
    grpc_max_long_streams: int = change_default(GrpcSettings, "grpc_max_long_streams", 4_096, because=_MANY_CLIENTS)
    grpc_max_long_streams_per_connection: int = change_default(
        GrpcSettings, "grpc_max_long_streams_per_connection", 16, because="a client has three streams on a connection"
    )


class PulsarAddressSettings(Configuration):
    pulsar_advertised_address: str = setting(
        "",
        "Address that clients of Pulsar's protocol connect to, host:port. Empty: the host of advertised_address, or "
        "else of the internal listener in advertised_listeners, with the port that the broker listens at for these "
        "clients. If neither is set, it is the address that the broker listens at for these clients. A standalone "
        "that listens at all addresses then gives each client the address that the client connected to.",
        subject=Subject.ADDRESSES,
    )

    @field_validator("pulsar_advertised_address")
    @classmethod
    def _check_pulsar_advertised_address(cls, value: str) -> str:
        return value and check_address(value)


class PulsarListenerSettings(Configuration):
    broker_max_connections: int = setting(
        10_000,
        "Maximum number of connections of clients of Pulsar's protocol. 0: no limit. Pulsar's default: 0.",
        subject=Subject.PULSAR,
        unit="connections",
        ge=0,
        le=MAX_COUNT,
        named_by="Pulsar",
        dynamic=True,
    )
    broker_max_connections_per_ip: int = setting(
        0,
        "Maximum number of connections of clients of Pulsar's protocol from one IP address. 0: no limit.",
        subject=Subject.PULSAR,
        unit="connections",
        ge=0,
        le=MAX_COUNT,
        named_by="Pulsar",
        dynamic=True,
    )
    keep_alive_interval_seconds: float = setting(
        30.0,
        "Seconds without a received command after which a client of Pulsar's protocol is pinged. If the client does "
        "not answer within the same time again, its connection is closed. A connection that has sent no CONNECT "
        "command is closed after this time.",
        subject=Subject.PULSAR,
        gt=0,
        named_by="Pulsar",
    )
    connection_liveness_check_timeout_millis: float = setting(
        5_000.0,
        "Milliseconds that a client of Pulsar's protocol has to answer a ping when another client requests its "
        "producer name or its exclusive subscription. Then its connection is closed.",
        subject=Subject.PULSAR,
        gt=0,
        named_by="Pulsar",
    )
    max_waiting_requests_per_connection: int = setting(
        1_000,
        "Maximum number of unanswered requests of one connection of Pulsar's protocol. Above it the broker stops "
        "reading the connection.",
        subject=Subject.PULSAR,
        unit="requests",
        ge=1,
    )
    max_waiting_requests_bytes_per_connection: int = setting(
        1_048_576,
        "Maximum memory, in bytes, of the unanswered requests of one connection of Pulsar's protocol. Above it the "
        "broker stops reading the connection.",
        subject=Subject.PULSAR,
        ge=1,
    )
    max_unfinished_frames_bytes: int = setting(
        268_435_456,
        "Maximum memory, in bytes, of the frames that all connections of Pulsar's protocol have received in part. "
        "Above it the connection whose frame began first is closed.",
        subject=Subject.PULSAR,
        ge=1,
    )
    max_waiting_answers_bytes: int = setting(
        1_048_576,
        "Maximum memory, in bytes, of what waits to be sent to one client of Pulsar's protocol, in addition to "
        "max_queued_bytes_per_stream. Above the sum of both the broker stops reading the connection. While "
        "max_queued_bytes is reached, the broker stops reading above 262144 bytes.",
        subject=Subject.PULSAR,
        ge=HIGH_WATER_BYTES,
    )
    max_message_ids_at_once: int = setting(
        2_000,
        "Message ids of one command of Pulsar's protocol that are processed before other connections are served.",
        subject=Subject.PULSAR,
        unit="message ids",
        ge=1,
    )
    topic_list_watch_interval_seconds: float = setting(
        1.0,
        "Maximum delay, in seconds, between a change of a namespace's topics and the notification of clients that "
        "watch them.",
        subject=Subject.PULSAR,
        gt=0,
        formerly="topic_list_watch_interval_s",
    )
    max_topic_watchers_per_connection: int = setting(
        100,
        "Maximum number of topic list watches of one connection of Pulsar's protocol, or of one native client at the "
        "broker. Each watches the topics of one namespace.",
        subject=Subject.PULSAR,
        unit="watches",
        ge=1,
    )
    subscription_pattern_max_length: int = setting(
        1_000,
        "Maximum length, in characters, of a topic pattern from a client. Pulsar's default: 50.",
        subject=Subject.PULSAR,
        unit="characters",
        ge=1,
        named_by="Pulsar",
    )


class LookupSettings(Configuration):
    max_concurrent_lookup_request: int = setting(
        10_000,
        "Maximum number of concurrent lookups and requests for a topic's partitions, last message or schema, or for a "
        "namespace's topics, counted together. Further ones are refused, and clients retry them. Pulsar's default: "
        "50000.",
        subject=Subject.BUNDLES,
        unit="requests",
        ge=1,
        le=MAX_COUNT,
        named_by="Pulsar",
        dynamic=True,
    )
