"""Why a subscription delivers nothing, or no more: the table of all reasons.

Each kind has a code, which never changes, the text with the numbers of the case, what it means, and what to do. A
`DeliveryReason` is one case. It is made where the rule is that holds a delivery back: a dispatch rule, a capacity, a
rate. Its texts are formatted only when somebody reads them.

client/delivery_reasons.md is generated from the table. Which reason is the answer if there are several is decided by
the broker (topics/subscription_reasons.py).
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

__all__ = ["REASONS", "DeliveryReason", "ReasonKind", "describe_consumers"]


@dataclass(frozen=True, slots=True)
class ReasonKind:
    code: str
    # A format string; `facts` of the reason have the values. Names that end in `_ms` are times.
    text: str
    # For the guide: when a subscription is in this state.
    meaning: str
    # What to do, a format string, too.
    action: str
    # Nothing is wrong: the subscription works as it should.
    is_normal: bool = False
    # It adds to another reason, which is the answer.
    is_note: bool = False

    def __call__(self, **facts: int | str) -> DeliveryReason:
        """Return a case with these numbers and names."""
        return DeliveryReason(self, facts)


@dataclass(frozen=True, slots=True)
class DeliveryReason:
    kind: ReasonKind
    facts: Mapping[str, int | str] = field(default_factory=dict)

    @property
    def code(self) -> str:
        return self.kind.code

    @property
    def text(self) -> str:
        return self.kind.text.format_map(self._format_times())

    @property
    def action(self) -> str:
        return self.kind.action.format_map(self._format_times())

    def _format_times(self) -> Mapping[str, int | str]:
        return {
            name: _format_time(value) if name.endswith("_ms") and isinstance(value, int) else value
            for name, value in self.facts.items()
        }


def _format_time(time_ms: int) -> str:
    if not time_ms:
        return "never"
    at = datetime.datetime.fromtimestamp(time_ms / 1000, datetime.UTC).replace(tzinfo=None)
    return f"{at.isoformat(' ', 'milliseconds')} UTC"


def describe_consumers(names: list[str], total: int) -> str:
    """Name some of a subscription's consumers, as the fact `who`: by name if there is only one."""
    if len(names) == 1:
        return f"consumer {names[0]}"
    return f"all {total:,} consumers" if len(names) == total else f"{len(names):,} of {total:,} consumers"


_kinds: dict[str, ReasonKind] = {}


def _kind(
    code: str, text: str, meaning: str, action: str, *, is_normal: bool = False, is_note: bool = False
) -> ReasonKind:
    kind = _kinds[code] = ReasonKind(code, text, meaning, action, is_normal, is_note)
    return kind


# The topic.
NO_OWNER: Final = _kind(
    "no_owner",
    "no broker serves the topic now: {error}",
    "No broker was found that owns the topic's bundle, or its owner did not answer.",
    "Check that brokers run, and that they reach the metadata store (`magnetar brokers list`). Clients retry by "
    "themselves.",
)
TOPIC_NOT_LOADED: Final = _kind(
    "topic_not_loaded",
    "the owner, broker {broker}, can't load the topic: {error}",
    "The owner can't open the topic's log or cursors, for example because bookies are missing. It has no clients.",
    "Correct what the error names. Clients retry by themselves, and the broker's log has the details.",
)
TOPIC_CLOSING: Final = _kind(
    "topic_closing",
    "the topic is being closed at this broker: {error}",
    "The topic is being unloaded, moved to another broker or deleted.",
    "Wait: clients look the topic up again by themselves.",
)
# The subscription.
CURSOR_DAMAGED: Final = _kind(
    "cursor_damaged",
    "{error}",
    "What is stored of the subscription's progress is damaged on all bookies, or can't be decoded.",
    "Move the subscription to a position that you know: `magnetar subscriptions reset`. Other subscriptions go on.",
)
CURSOR_OPENING: Final = _kind(
    "cursor_opening",
    "{error}",
    "The subscription's progress is being read from bookies, or that has failed, and is retried.",
    "Wait. If an error is named, check the bookies and the metadata store; `magnetar subscriptions reset` replaces "
    "a cursor that can't be read.",
)
CHANGING: Final = _kind(
    "changing",
    "the subscription is being changed: {change} is in progress",
    "A seek, reset, skip, expiry or eviction is being stored. Nothing is delivered, and no consumer joins until then.",
    "Wait. If it takes longer than seconds, check the bookies and the metadata store.",
)
DELETING: Final = _kind(
    "deleting",
    "the subscription is being deleted",
    "A client has unsubscribed, or an administrator deletes the subscription.",
    "Wait. Consumers that subscribe later create it again, if that is allowed.",
)
READER_PROGRESS: Final = _kind(
    "reader_progress",
    "the subscription is the progress of a reader of the log ({owner}), and delivers to no consumer",
    "A Spark job reads the log from the bookies, and moves this subscription as it reads.",
    "Consume by another subscription. If this one does not move, look at the job that reads.",
    is_normal=True,
)
NO_CONSUMER: Final = _kind(
    "no_consumer",
    "no consumer is connected",
    "The subscription has no consumer. If it has a backlog, that waits, too.",
    "Start a consumer. If one runs, look for the answer to its subscribe request in its log: it may use another "
    "topic, subscription name or cluster.",
)
CONSUMER_REFUSED: Final = _kind(
    "consumer_refused",
    "subscribe requests refused since the topic was loaded: {times:,}, the last one at {at_ms}, of consumer {consumer} "
    "from {address}: {error}",
    "A consumer may not join: for its schema, its type, an Exclusive consumer that is connected, a limit or a rate.",
    "Correct what the error names, and start the consumer again.",
    is_note=True,
)
READ_FAILED: Final = _kind(
    "read_failed",
    "reading failed {times:,} times at entry {position}, and is retried: {error}",
    "The entries can't be read from their ledger: its bookies do not answer, or report errors.",
    "Check the bookies of ledger {ledger} (`magnetar bookies list`). Reading goes on by itself when one of them "
    "answers.",
)
READING: Final = _kind(
    "reading",
    "entries are being read from the bookies, since {since_ms}",
    "Consumers have capacity, and wait for a read that is in progress.",
    "Nothing, if it takes milliseconds. If it takes longer, check the bookies: they are slow or overloaded.",
    is_normal=True,
)
# The consumers.
NO_PERMITS: Final = _kind(
    "no_permits",
    "the receiver queue of {who} is full: no permits are left",
    "The client has prefetched as much as its receiver queue takes, and grants the broker no permits until the "
    "application receives messages.",
    "Find out why the application does not call receive: it is busy, blocked, or has paused the consumer. If "
    "it is too slow, start more consumers (Shared, Key_Shared or Failover on partitions). If this is a retry letter "
    "topic, the client may hold letters that are not due, as many as it can: start more consumers, or raise their "
    "receiver_queue_size.",
)
MAX_UNACKED_CONSUMER: Final = _kind(
    "max_unacked_consumer",
    "max_unacked_messages_per_consumer is {limit:,}, and {who} reached it: {messages:,} messages are delivered and "
    "not acknowledged",
    "A consumer of a Shared or Key_Shared subscription gets nothing until it acknowledges messages.",
    "Let the application acknowledge each message that it has processed, or negatively acknowledge it. If it needs "
    "more at a time, raise the policy max_unacked_messages_per_consumer.",
)
MAX_UNACKED_SUBSCRIPTION: Final = _kind(
    "max_unacked_subscription",
    "max_unacked_messages_per_subscription is {limit:,}, and {messages:,} messages are delivered and not acknowledged",
    "All consumers of the subscription together have too many unacknowledged messages.",
    "Find the consumers that do not acknowledge (column unacknowledged), and restart or close them: their messages "
    "go to others. If that many are needed, raise the policy max_unacked_messages_per_subscription.",
)
SLOW_CONNECTION: Final = _kind(
    "slow_connection",
    "the connection of {who} can't keep up: {bytes:,} bytes wait to be sent",
    "The client reads its connection more slowly than messages arrive.",
    "Check the network between client and broker, and whether the client's process is overloaded or suspended.",
)
BROKER_MEMORY: Final = _kind(
    "broker_memory",
    "the broker has no memory for more messages to {who}: {bytes:,} bytes wait to be sent to all clients, and "
    "max_queued_bytes is {limit:,}",
    "Many slow connections together fill the broker's memory for messages that wait to be sent.",
    "Find the slow clients (`slow_connection`), or raise the broker's setting max_queued_bytes.",
)
CLOSING: Final = _kind(
    "closing",
    "the connection of {who} is being closed",
    "The consumer or its connection is being closed, and gets no more messages.",
    "Wait: the client reconnects, or its messages go to other consumers.",
)
NOT_ACTIVE: Final = _kind(
    "not_active",
    "consumer {active} is the active one of the subscription, and gets all messages: {cause}",
    "A Failover subscription delivers to one consumer at a time, the active one.",
    "Nothing: this consumer takes over when the active one leaves. To share the messages use Shared or Key_Shared.",
    is_normal=True,
)
LOWER_PRIORITY: Final = _kind(
    "lower_priority",
    "consumers of priority level {level} get all messages, while one of them has permits; this one has level {own}",
    "Consumers of a Shared subscription are served by their priority levels, 0 first.",
    "Nothing, if that is meant. Otherwise give the consumers the same priority level.",
    is_normal=True,
)
CHUNKS_WAIT: Final = _kind(
    "chunks_wait",
    "{chunks:,} chunks wait for the consumers that have the first chunks of their messages, and no capacity now: {who}",
    "All chunks of a large message go to one consumer, in order.",
    "Let these consumers receive and acknowledge. If one hangs, close it: its messages go to others, whole.",
)
LOOK_AHEAD: Final = _kind(
    "look_ahead",
    "{entries:,} entries were read and wait for the consumers of their keys, and the limit is {limit:,}: nothing new "
    "is read",
    "The consumers of some keys of a Key_Shared subscription have no capacity, have not acknowledged what they got of "
    "a key that another consumer has now, or are missing (mode STICKY). At the limit, other keys wait, too.",
    "Let these consumers receive and acknowledge, or close those that hang. If that many entries should wait, raise "
    "the broker's settings key_shared_look_ahead_msg_in_replay_threshold_per_consumer and _per_subscription.",
)
KEY_HELD: Final = _kind(
    "key_held",
    "{entries:,} entries of {slots:,} key slots wait until the consumers that had these keys before have acknowledged "
    "what they got of them: slot {slot} is held by consumer {holder} (entries: {unacked:,})",
    "A Key_Shared subscription delivers a key that has moved to its new consumer only when the old one has "
    "acknowledged its earlier messages, those in its receiver queue included. The first 1,000 slots with waiting "
    "entries are counted.",
    "Let consumer {holder} acknowledge, or close it if it hangs: then its keys move at once. If order does not matter, "
    "use allow_out_of_order_delivery.",
)
KEYS_WAIT: Final = _kind(
    "keys_wait",
    "{entries:,} entries wait for the consumers of their keys, which get nothing now: {cause}",
    "A Key_Shared subscription delivers a key to one consumer only. Consumers with capacity get other keys.",
    "Let {who} receive and acknowledge. To move its keys to other consumers, close it.",
)
SLOT_WITHOUT_CONSUMER: Final = _kind(
    "slot_without_consumer",
    "{entries:,} entries wait, since no consumer has the hash range of their keys: the first one is of slot {slot}",
    "The consumers of a Key_Shared subscription in the mode STICKY name their hash ranges, and leave a gap. The first "
    "1,000 slots with waiting entries are counted.",
    "Start a consumer whose ranges contain slot {slot}, or use the mode AUTO_SPLIT.",
)
MIXED_BATCHES: Final = _kind(
    "mixed_batches",
    "batches with messages of several keys, each delivered as a whole to the consumer of its first key: {batches:,}",
    "Order and distribution by key hold for the first keys of such batches only (Key_Shared). Batches count "
    "since the topic was loaded, by their first 100 messages.",
    "Let the producers use key-based batching, or no batching.",
    is_note=True,
)
REDELIVERY_WAITS: Final = _kind(
    "redelivery_waits",
    "{entries:,} entries wait for redelivery, and are delivered first",
    "They were negatively acknowledged, not acknowledged in time, or their consumer has left. The delay after a "
    "negative acknowledgement is in the client: the broker knows of it only when it is over.",
    "If they are redelivered again and again, look for the error in the application, or use a dead letter topic.",
    is_note=True,
)

# Dispatch rates.


def _rate(level: str, how: str) -> ReasonKind:
    return _kind(
        f"dispatch_rate_of_{level}",
        "{rate}: the next messages are due at {until_ms}",
        f"The dispatch rate of the {level} limits the messages or bytes in a time.",
        f"Nothing, if the limit is meant. Otherwise raise {how}.",
    )


DISPATCH_RATE_OF_SUBSCRIPTION: Final = _rate(
    "subscription", "the policy subscription_dispatch_rate of the topic or namespace"
)
DISPATCH_RATE_OF_TOPIC: Final = _rate("topic", "the policy dispatch_rate of the topic or namespace")
DISPATCH_RATE_OF_BROKER: Final = _rate(
    "broker", "the broker's settings dispatch_throttling_rate_in_msg and dispatch_throttling_rate_in_byte"
)

# Nothing to deliver.
WAITING_FOR_ACKS: Final = _kind(
    "waiting_for_acks",
    "everything is delivered, and the acknowledgement of {delivered} by {who} is missing (last delivery: "
    "{delivered_ms}, last acknowledgement: {acknowledged_ms})",
    "Consumers have all messages, and have not acknowledged them. They may wait in the receiver queue.",
    "Find out what the application does with them: it is busy, or forgets to acknowledge. Or the client waits: for the "
    "delay of a negative acknowledgement, until a retry letter is due, or until it can store dead letters (its log has "
    "the error).",
)
NO_BACKLOG: Final = _kind(
    "no_backlog",
    "everything that was published is acknowledged (mark-delete position {position})",
    "There is nothing to deliver. A subscription that was created at `latest` never gets earlier messages.",
    "Publish to this topic, and check the producer's topic name. To receive acknowledged messages again, move the "
    "subscription: `magnetar subscriptions reset`.",
    is_normal=True,
)
NON_PERSISTENT: Final = _kind(
    "non_persistent",
    "the topic is non-persistent: only messages that are published while a consumer has permits are delivered",
    "Consumers have permits, and wait for new messages.",
    "Publish to this topic, and check the producer's topic name. Use a persistent topic if messages should wait for "
    "consumers.",
    is_normal=True,
)
END_OF_TOPIC: Final = _kind(
    "end_of_topic",
    "the topic is terminated, and everything is acknowledged",
    "No message is accepted any more.",
    "Close the consumers: no message will come.",
    is_normal=True,
)
PUBLISHING_WAITS: Final = _kind(
    "publishing_waits",
    "publishing to the topic waits: {cause}",
    "New messages are held back before they are stored.",
    "See `Why a publish is refused or waits` in the guide to administration.",
    is_note=True,
)
EXPIRED: Final = _kind(
    "expired",
    "{entries:,} entries expired without having been acknowledged, the last of them at {at_ms}",
    "They were older than the time to live, or an administrator let them expire. Counted since the topic was loaded.",
    "If they were needed, raise the policy message_ttl, or consume faster.",
    is_note=True,
)
EVICTED: Final = _kind(
    "evicted",
    "backlog quotas of the topic evicted messages {times:,} times",
    "The oldest messages count as acknowledged, since a subscription had more than its backlog quota allows. "
    "Counted since the topic was loaded.",
    "If they were needed, raise the backlog quota, change its policy to hold producers, or consume faster.",
    is_note=True,
)
ENTRIES_LOST: Final = _kind(
    "entries_lost",
    "{entries:,} entries are on no bookie any more, and were skipped",
    "Their bookies were lost, with all replicas. The topic's statistics name the entries.",
    "Restore the bookies' disks if they exist, and reset the subscription. The log of the broker names each entry.",
    is_note=True,
)
DROPPED: Final = _kind(
    "dropped",
    "{messages:,} messages were dropped, because no consumer had permits when they were published",
    "A non-persistent topic stores nothing: what no consumer takes at once is dropped.",
    "Let consumers receive faster, or with a larger receiver queue; use a persistent topic if nothing may be lost.",
    is_note=True,
)
POLICIES_UNKNOWN: Final = _kind(
    "policies_unknown",
    "the topic's own policies can't be read: only those of its namespace apply",
    "The topic of the namespace's policy events can't be read now.",
    "Check the owner of the namespace's topic `__change_events`. Nothing expires until the policies are known.",
    is_note=True,
)
DELIVERING: Final = _kind(
    "delivering",
    "messages are being delivered: the broker holds nothing back",
    "There is a backlog, and consumers have permits. The statistics have the time of the last delivery.",
    "If the application gets nothing, look at the client: messages may wait in its receiver queue.",
    is_normal=True,
)

REASONS: Final[Mapping[str, ReasonKind]] = _kinds
