"""What can be set about topics and publishing. Names are Pulsar's where it has the option."""

from __future__ import annotations

from pydantic import Field

from magnetar_wire.configuration import Configuration
from magnetar_wire.limits import MAX_MESSAGE_BYTES

__all__ = ["TopicSettings"]


class TopicSettings(Configuration):
    # Maximum size, in bytes, of the payload of one entry, as it is stored: a batch as a whole, after compression.
    max_message_size: int = Field(default=MAX_MESSAGE_BYTES, gt=0, le=MAX_MESSAGE_BYTES)
    # Maximum number of topics that are opened at a time. Others wait.
    max_concurrent_topic_load_request: int = Field(default=100, gt=0)
    # Seconds that opening one topic may take. Then it has failed, and clients retry.
    topic_load_timeout_seconds: float = Field(default=60.0, gt=0)
    # Seconds after which opening a topic counts as slow; less than topic_load_timeout_seconds. Slow openings, and those
    # of topics whose last opening failed, hold at most half of max_concurrent_topic_load_request while others wait.
    slow_topic_load_seconds: float = Field(default=10.0, gt=0)
    # Maximum number of producers of one topic. 0: no limit.
    max_producers_per_topic: int = Field(default=0, ge=0)
    # Maximum number of producers on one stream, or one connection of Pulsar's protocol. Further ones are refused.
    max_producers_per_stream: int = Field(default=10_000, gt=0)
    # Maximum number of parts of one message on a produce stream: producers opened and closed, and runs of entries,
    # together. More end the stream.
    max_parts_per_produce_request: int = Field(default=20_000, gt=0)
    # Memory, in bytes, of one topic's entries that are received and not stored yet; each entry counts with 512 bytes
    # besides its payload. The topic pauses its producers at this bound. A broker refuses to start where
    # managed_ledger_max_pending_bytes has no capacity for it and one frame of entries.
    max_pending_publish_bytes_per_topic: int = Field(default=32 * 1024 * 1024, gt=0)
    # Memory, in bytes, of the entries of one stream or connection that are received and not stored yet; each entry
    # counts with 512 bytes besides its payload. The broker stops reading the stream or connection at this bound.
    # A stream's producer is paused earlier, when it uses up its share: one alone gets half of this bound.
    max_pending_publish_bytes_per_connection: int = Field(default=64 * 1024 * 1024, gt=0)
    # Memory, in MiB, of all entries that the broker has received and not stored yet; each entry counts with 512 bytes
    # besides its payload. The broker stops reading all producers' streams and connections at this bound.
    max_message_publish_buffer_size_in_mb: int = Field(default=256, gt=0)
    # Maximum number of results of publishes that wait for the client to read them. Above it the broker stops reading
    # the client's stream.
    max_waiting_publish_answers: int = Field(default=20_000, gt=0)
    # Seconds, approximately, between two rounds of a topic's maintenance: its ledgers are rolled over and trimmed.
    topic_housekeeping_interval_s: float = Field(default=1.0, gt=0)
    # Delete a topic, with all its messages, when it has had no subscription, producer or consumer for
    # broker_delete_inactive_topics_max_inactive_duration_seconds. Messages that
    # default_retention_without_subscription_minutes retains are deleted, too.
    broker_delete_inactive_topics_enabled: bool = False
    # Seconds without a subscription, producer or consumer after which broker_delete_inactive_topics_enabled deletes a
    # topic.
    broker_delete_inactive_topics_max_inactive_duration_seconds: float = Field(default=60.0, gt=0)
    # Seconds without a connected client after which a topic is unloaded; it is loaded again when it is used. 0: never.
    unload_idle_topics_after_s: float = Field(default=0.0, ge=0)
    # Seconds that closing a topic waits for operations in flight. The next opening recovers the rest.
    topic_close_timeout_s: float = Field(default=10.0, gt=0)
