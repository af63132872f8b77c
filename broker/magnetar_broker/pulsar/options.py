"""Options of the listener for Pulsar's protocol. Names are Pulsar's where it has the option."""

from __future__ import annotations

from typing import Final

from pydantic import Field

from magnetar_wire.configuration import Configuration

__all__ = ["HIGH_WATER_BYTES", "PulsarOptions"]

# Of what waits to be written: below that nobody is told when it is taken.
HIGH_WATER_BYTES: Final = 262_144


class PulsarOptions(Configuration):
    # Connections of clients of Pulsar's protocol: of all, and from one address. 0: any number.
    broker_max_connections: int = Field(default=10_000, ge=0)
    broker_max_connections_per_ip: int = Field(default=0, ge=0)
    # One that says nothing for so long is asked for a sign of life, and closed when it gives none within as long again;
    # one that has not said CONNECT by then is closed at once.
    keep_alive_interval_seconds: float = Field(default=30.0, gt=0)
    # A name that is taken, or a consumer that is alone: how long whoever has it may take to show that it still lives,
    # when somebody else asks for it.
    connection_liveness_check_timeout_millis: float = Field(default=5_000.0, gt=0)
    # Requests of one connection that are not answered yet: above that it is not read on.
    max_waiting_requests_per_connection: int = Field(default=1_000, gt=0)
    # The same, in bytes of the commands that the broker keeps meanwhile.
    max_waiting_requests_bytes_per_connection: int = Field(default=1_048_576, gt=0)
    # Of what connections have sent, frames that have not come whole yet: of all connections together. Above that, the
    # one whose frame began longest ago is closed.
    max_unfinished_frames_bytes: int = Field(default=268_435_456, gt=0)
    # Answers that one client has not taken, besides what is delivered to it: above that it is not read on. Where
    # max_queued_bytes_of_all_streams is reached it is the least that this may be.
    max_waiting_answers_bytes: int = Field(default=1_048_576, ge=HIGH_WATER_BYTES)
    # Of one command that names messages, so many are looked at before other connections have their turn.
    max_message_ids_at_once: int = Field(default=2_000, gt=0)
    # Between a change of a namespace's topics and telling those who watch them, at most so long.
    topic_list_watch_interval_s: float = Field(default=1.0, gt=0)
    # Watches of the topics of namespaces, of one connection.
    max_topic_watchers_per_connection: int = Field(default=100, gt=0)
    # Of the patterns that clients of Pulsar's protocol have topics' names held against, in characters.
    subscription_pattern_max_length: int = Field(default=1_000, gt=0)
