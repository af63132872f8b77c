"""What can be acknowledged, also negatively: a received message, or a message that is named by its id."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from magnetar._message import DeliveryEpoch, Message
from magnetar_wire.message_id import MessageId

__all__ = ["AckTarget", "MessageIdTarget", "to_sequence"]


@dataclass(slots=True, frozen=True)
class MessageIdTarget:
    """A message that the application names by its id; with `cumulative` all messages up to and including it."""

    # Its origin is the partition of the id.
    epoch: DeliveryEpoch
    ledger_id: int
    entry_id: int
    # -1: the whole entry.
    batch_index: int
    batch_size: int
    cumulative: bool


AckTarget = Message | MessageIdTarget


def to_sequence(what: Any) -> Sequence[Any]:
    """Return the messages and ids that are acknowledged together. They may be iterated once only. What is neither a
    message nor a collection of them is returned as one, so that it is refused."""
    is_one = isinstance(what, MessageId) or callable(getattr(what, "message_id", None))
    is_collection = isinstance(what, Iterable) and not isinstance(what, (Mapping, str, bytes))
    return list(what) if is_collection and not is_one else [what]
