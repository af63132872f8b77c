"""Messages as columns: the input of the batch encoder, and the output of the decoder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

__all__ = ["Messages"]


@dataclass(slots=True, eq=False)
class Messages:
    """Messages in order, with one column for each of their properties.

    Every column has one element per message. A column is None if no message has that property. A thousand messages are
    a handful of objects, not a thousand: the codec owes its speed to that.
    """

    # None: the message has no value, which differs from an empty one. Decoded payloads are bytes. To encode, any other
    # buffer of single bytes is allowed, too.
    payloads: Sequence[bytes | None]
    # The producer's sequence ids. An `array("Q")` is the fastest to encode and decode.
    sequence_ids: Sequence[int | None] | None = None
    # Text, or bytes.
    keys: Sequence[str | bytes | None] | None = None
    ordering_keys: Sequence[bytes | None] | None = None
    # Decoded properties may be parsed at the first access. If one message's can't be parsed, an access to any message's
    # raises MalformedEntry: the batch is malformed, and could have been refused when it was decoded.
    properties: Sequence[Mapping[str, str]] | None = None
    # The application's time of the event, in ms since 1970; 0: not set.
    event_times: Sequence[int] | None = None
    # Whether the message's key is null.
    null_keys: Sequence[bool] | None = None
    # Whether compaction removed the message. Consumers don't get it.
    compacted_out: Sequence[bool] | None = None
    # The messages' indexes in their batch; None: 0, 1, 2 … A compacted batch may lack some.
    batch_indexes: Sequence[int] | None = None

    def __len__(self) -> int:
        return len(self.payloads)
