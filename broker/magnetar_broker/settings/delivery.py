"""Settings of subscriptions and of consume streams. Names are Pulsar's where it has the setting."""

from __future__ import annotations

from typing import Literal

from magnetar_broker.settings.rates import DispatchRateSettings
from magnetar_wire.configuration import Configuration
from magnetar_wire.limits import FRAME_FILL_BYTES, MAX_MESSAGE_BYTES
from magnetar_wire.settings import MAX_COUNT, Subject, setting

__all__ = ["ConsumeSettings", "SubscriptionSettings", "SubscriptionTypeName"]


# The names of Pulsar's SubscriptionType.
SubscriptionTypeName = Literal["Exclusive", "Shared", "Failover", "Key_Shared"]


class SubscriptionSettings(DispatchRateSettings):
    allow_auto_subscription_creation: bool = setting(
        True,
        "Create a subscription when a consumer subscribes to it for the first time. A namespace's policies can "
        "override it.",
        subject=Subject.DELIVERY,
        named_by="Pulsar",
        dynamic=True,
    )
    subscription_types_enabled: tuple[SubscriptionTypeName, ...] = setting(
        ("Exclusive", "Shared", "Failover", "Key_Shared"),
        "Types of subscriptions that consumers may use, separated by commas: Exclusive,Shared,Failover,Key_Shared. A "
        "policy overrides it.",
        subject=Subject.DELIVERY,
        min_length=1,
        max_length=4,
        named_by="Pulsar",
        dynamic=True,
    )
    max_unacked_messages_per_consumer: int = setting(
        50_000,
        "Maximum number of messages of a Shared subscription that are delivered to one consumer and not "
        "acknowledged. At this bound the consumer gets no more. 0: no limit. Exclusive and Failover subscriptions "
        "have no limit, as in Pulsar.",
        subject=Subject.DELIVERY,
        unit="messages",
        ge=0,
        named_by="Pulsar",
    )
    max_unacked_messages_per_subscription: int = setting(
        200_000,
        "Maximum number of messages of a Shared subscription that are delivered to its consumers and not "
        "acknowledged. At this bound the subscription delivers no more. 0: no limit. Exclusive and Failover "
        "subscriptions have no limit, as in Pulsar.",
        subject=Subject.DELIVERY,
        unit="messages",
        ge=0,
        named_by="Pulsar",
    )
    subscription_key_shared_use_consistent_hashing: bool = setting(
        False,
        "Divide the keys of Key_Shared subscriptions among their consumers by consistent hashing. Otherwise each "
        "consumer gets one range of the keys' hashes, and a new one takes half of the largest range. It applies to "
        "subscriptions whose first consumer connects later.",
        subject=Subject.DELIVERY,
        named_by="Pulsar",
    )
    subscription_key_shared_consistent_hashing_replica_points: int = setting(
        100,
        "Points of each consumer in the ring of consistent hashing. More points divide keys more evenly, and cost "
        "memory.",
        subject=Subject.DELIVERY,
        unit="points",
        ge=1,
        le=10_000,
        named_by="Pulsar",
    )
    key_shared_look_ahead_msg_in_replay_threshold_per_consumer: int = setting(
        2_000,
        "Maximum number of entries of a Key_Shared subscription that were read and wait for their consumers, for each "
        "of its consumers. At this bound nothing new is read. 0: no limit.",
        subject=Subject.DELIVERY,
        unit="entries",
        ge=0,
        le=MAX_COUNT,
        named_by="Pulsar",
    )
    key_shared_look_ahead_msg_in_replay_threshold_per_subscription: int = setting(
        20_000,
        "Maximum number of entries of a Key_Shared subscription that were read and wait for their consumers. At this "
        "bound nothing new is read. 0: no limit.",
        subject=Subject.DELIVERY,
        unit="entries",
        ge=0,
        le=MAX_COUNT,
        named_by="Pulsar",
    )
    max_consumers_per_subscription: int = setting(
        0,
        "Maximum number of consumers of one subscription. 0: no limit.",
        subject=Subject.DELIVERY,
        unit="consumers",
        ge=0,
        le=MAX_COUNT,
        named_by="Pulsar",
        dynamic=True,
    )
    max_consumers_per_topic: int = setting(
        0,
        "Maximum number of consumers of one topic, of all its subscriptions together. 0: no limit.",
        subject=Subject.DELIVERY,
        unit="consumers",
        ge=0,
        le=MAX_COUNT,
        named_by="Pulsar",
    )
    max_same_address_consumers_per_topic: int = setting(
        0,
        "Maximum number of consumers of one topic from the same host. 0: no limit.",
        subject=Subject.DELIVERY,
        unit="consumers",
        ge=0,
        le=MAX_COUNT,
        named_by="Pulsar",
    )
    dispatcher_max_read_batch_size: int = setting(
        100,
        "Maximum number of entries that are read at a time for one subscription.",
        subject=Subject.READING,
        unit="entries",
        ge=1,
        named_by="Pulsar",
    )
    dispatcher_max_read_size_bytes: int = setting(
        MAX_MESSAGE_BYTES,
        "Maximum size, in bytes, of the entries that are read at a time for one subscription.",
        subject=Subject.READING,
        ge=1,
        named_by="Pulsar",
    )
    dispatcher_max_round_robin_batch_size: int = setting(
        20,
        "Messages of a Shared subscription that one consumer gets before the next one's turn.",
        subject=Subject.DELIVERY,
        unit="messages",
        ge=1,
        named_by="Pulsar",
    )


class ConsumeSettings(Configuration):
    max_consumers_per_stream: int = setting(
        10_000,
        "Maximum number of consumers on one stream, or one connection of Pulsar's protocol. Further ones are refused.",
        subject=Subject.DELIVERY,
        unit="consumers",
        ge=1,
    )
    max_queued_bytes_per_stream: int = setting(
        4 * FRAME_FILL_BYTES,
        "Maximum memory, in bytes, of the entries that wait to be sent on one stream. Each entry counts as its stored "
        "size plus 512 bytes. At this bound the broker reads no more entries for the stream.",
        subject=Subject.DELIVERY,
        ge=1,
    )
    max_queued_bytes: int = setting(
        268_435_456,
        "Maximum memory, in bytes, of the entries that wait to be sent on all streams and connections together. At "
        "this bound each stream or connection may still queue up to 262144 bytes of entries.",
        subject=Subject.DELIVERY,
        ge=1,
        formerly="max_queued_bytes_of_all_streams",
    )
    max_parts_per_consume_request: int = setting(
        20_000,
        "Maximum number of parts of one request on a consume stream: its commands, and the ranges of entries and the "
        "messages that they name, counted together. A request with more parts ends the stream.",
        subject=Subject.DELIVERY,
        unit="parts",
        ge=1,
    )
    max_waiting_answers_per_stream: int = setting(
        20_000,
        "Maximum number of unanswered requests and unread responses of one consume stream. Above it the broker "
        "stops reading the stream.",
        subject=Subject.DELIVERY,
        unit="requests and responses",
        ge=1,
    )
