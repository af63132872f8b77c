"""Places and bit sets of the public protocol, and the broker's own.

The protocol's ids are unsigned: its `earliest` is -1 in 64 bits, its `latest` the highest signed number. Its bit sets
say which messages of a batch are *not* acknowledged, 64 to a word, and leave out words of zeros at the end; the
broker's say which are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from magnetar_broker.core.position import Position
from magnetar_protos.broker_pb2 import MessagePlace, StartAt
from magnetar_protos.entry_pb2 import MessageIdData
from magnetar_wire.limits import MAX_BATCH_MESSAGES

__all__ = ["MOST_WORDS", "acknowledged_bits", "place_of", "position_of", "unacknowledged_words"]

_MOST: Final = 2**63 - 1
_WORD: Final = 2**64
_WORD_BITS: Final = 64
# Of the largest batch; nobody has use for more.
MOST_WORDS: Final = -(-MAX_BATCH_MESSAGES // _WORD_BITS)


def position_of(message_id: MessageIdData) -> Position:
    return Position(_signed(message_id.ledgerId), _signed(message_id.entryId))


def place_of(message_id: MessageIdData) -> StartAt:
    """Where reading begins: at the entry, and of a batch at the first message that the id says is open."""
    position = position_of(message_id)
    first = _first_bit(message_id.ack_set[:MOST_WORDS])
    return StartAt(
        place=MessagePlace(
            ledger_id=position.ledger_id,
            entry_id=position.entry_id,
            batch_index=first if first > 0 else -1,
            inclusive=True,
        )
    )


def acknowledged_bits(unacknowledged: Sequence[int], batch_size: int) -> int:
    """Bit i: message i is acknowledged."""
    words = unacknowledged[: -(-batch_size // _WORD_BITS)]  # whatever is said of messages that it has not
    left = int.from_bytes(b"".join([(word % _WORD).to_bytes(8, "little") for word in words]), "little")
    return ~left & ((1 << batch_size) - 1)


def unacknowledged_words(acknowledged: bytes, batch_size: int) -> list[int]:
    """Of a batch's messages that are acknowledged, as in `DeliveryRun`: the others, as signed words."""
    left = ~int.from_bytes(acknowledged, "little") & ((1 << batch_size) - 1)
    words = []
    while left:
        word = left % _WORD
        words.append(word - _WORD if word > _MOST else word)
        left >>= _WORD_BITS
    return words


def _signed(value: int) -> int:
    return value - _WORD if value > _MOST else value


def _first_bit(words: Sequence[int]) -> int:
    """-1: none is set."""
    for index, word in enumerate(words):
        if word:
            return index * _WORD_BITS + ((word & -word).bit_length() - 1)
    return -1
