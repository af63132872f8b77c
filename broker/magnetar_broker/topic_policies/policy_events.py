"""The events of topic policies: how they are stored, and the policies that follow from them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from google.protobuf.message import DecodeError

from magnetar_protos.catalog_pb2 import Policies, TopicPoliciesEvent
from magnetar_protos.entry_pb2 import MessageMetadata
from magnetar_wire.entry import decode_entry, encode_entry
from magnetar_wire.errors import WireError

__all__ = ["MIN_EVENTS", "ForeignEvent", "PolicyState", "decode_event", "encode_event"]

_PRODUCER: Final = "__policies"
# A snapshot is due when there are more events than this, and more than this for each topic with policies.
MIN_EVENTS: Final = 1000
_EVENTS_PER_TOPIC: Final = 4


class ForeignEvent(ValueError):
    """An entry that no broker of this version has written."""


def encode_event(event: TopicPoliciesEvent, sequence_id: int, time_ms: int) -> bytes:
    """Return the entry of an event. One that removes the policies has no payload: a compaction drops it."""
    metadata = MessageMetadata(
        producer_name=_PRODUCER, sequence_id=sequence_id, publish_time=time_ms, partition_key=event.topic
    )
    return encode_entry(metadata, event.SerializeToString() if event.policies.ByteSize() else b"")


def decode_event(stored: bytes) -> TopicPoliciesEvent:
    """Return the event of a stored entry. Raises `ForeignEvent`."""
    try:
        entry = decode_entry(stored)
        if entry.is_batch or not entry.metadata.partition_key:
            raise ForeignEvent("it is no event of topic policies")
        if not entry.payload:
            return TopicPoliciesEvent(topic=entry.metadata.partition_key)
        return TopicPoliciesEvent.FromString(entry.payload)
    except (WireError, DecodeError) as error:
        raise ForeignEvent(str(error)) from None


@dataclass(slots=True)
class PolicyState:
    """The policies of a namespace's topics, after the events so far."""

    # By the topics' names, those that have policies.
    by_topic: dict[str, TopicPoliciesEvent] = field(default_factory=dict)
    # The number of events in the log.
    events: int = 0
    # The number of events that were ever applied to this object.
    changes: int = 0

    def apply(self, event: TopicPoliciesEvent) -> None:
        self.events += 1
        self.changes += 1
        if event.policies.ByteSize():
            self.by_topic[event.topic] = event
        else:
            self.by_topic.pop(event.topic, None)

    def get(self, topic: str, incarnation: str) -> Policies:
        """Return a copy of the topic's policies."""
        event, policies = self.by_topic.get(topic), Policies()
        if event is not None and event.incarnation == incarnation:
            policies.CopyFrom(event.policies)
        return policies

    @property
    def needs_snapshot(self) -> bool:
        return self.events > max(MIN_EVENTS, _EVENTS_PER_TOPIC * len(self.by_topic))

    def record_snapshot(self) -> None:
        """The log has only the events of the topics that have policies."""
        self.events = len(self.by_topic)
