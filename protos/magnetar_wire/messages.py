"""Messages as columns: what goes into a batch, and what comes out of an entry."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

__all__ = ["Messages"]


@dataclass(slots=True, eq=False)
class Messages:
    """Messages one after the other, a column for each thing that they may have.

    Every column has one element a message, in order; a column that is None stands for messages none of which has it.
    A thousand messages are a handful of objects here, not a thousand: that is where the codec's speed comes from.
    """

    # None: the message has no value, which is not the same as an empty one. Decoded ones are bytes; to be encoded, any
    # other buffer does that has as many elements as bytes.
    payloads: Sequence[bytes | None]
    # The producer's numbers. An `array("Q")` encodes and decodes fastest.
    sequence_ids: Sequence[int | None] | None = None
    # Text, or bytes.
    keys: Sequence[str | bytes | None] | None = None
    ordering_keys: Sequence[bytes | None] | None = None
    # Decoded ones may be parsed when they are first looked at. Looking raises MalformedEntry then, at any message's, if
    # any message's can't be read: the batch is malformed, and could as well have been refused when it was decoded.
    properties: Sequence[Mapping[str, str]] | None = None
    # When the event took place, in ms since 1970; 0: the application does not say.
    event_times: Sequence[int] | None = None
    # The message's key has no value.
    null_keys: Sequence[bool] | None = None
    # Compaction removed the message: nobody sees it.
    compacted_out: Sequence[bool] | None = None
    # The messages' places in their batch, where those are not 0, 1, 2 …: compaction may have left some.
    batch_indexes: Sequence[int] | None = None

    def __len__(self) -> int:
        return len(self.payloads)
