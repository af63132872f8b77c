"""What can be acknowledged, also negatively: a received message, or a message that is named by its id."""

from __future__ import annotations

from dataclasses import dataclass

from magnetar._message import DeliveryEpoch, Message

__all__ = ["AckTarget", "MessageIdTarget"]


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
