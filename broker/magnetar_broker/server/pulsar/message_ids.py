"""Translation of the protocol's positions and bit sets to the broker's own, and back.

The protocol's ids are unsigned: its `earliest` is -1 in 64 bits, its `latest` the highest signed number. Its bit sets
hold the messages of a batch that are *not* acknowledged, 64 to a word, without the words of zeros at the end; the
broker's hold those that are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from magnetar_broker.position import Position
from magnetar_protos.broker_pb2 import StartAt, StartMessageId
from magnetar_protos.entry_pb2 import MessageIdData
from magnetar_wire.limits import MAX_BATCH_MESSAGES

__all__ = ["MAX_WORDS", "acknowledged_bits", "start_at", "to_position", "unacknowledged_words"]

_MAX_SIGNED: Final = 2**63 - 1
_WORD: Final = 2**64
_WORD_BITS: Final = 64
# Words of the bit set of the largest batch; more are ignored.
MAX_WORDS: Final = -(-MAX_BATCH_MESSAGES // _WORD_BITS)


def to_position(message_id: MessageIdData) -> Position:
    return Position(_signed(message_id.ledgerId), _signed(message_id.entryId))


def start_at(message_id: MessageIdData) -> StartAt:
    """Return the position at which reading begins: the entry, and of a batch the first unacknowledged message."""
    position = to_position(message_id)
    first = _first_bit(message_id.ack_set[:MAX_WORDS])
    return StartAt(
        message_id=StartMessageId(
            ledger_id=position.ledger_id,
            entry_id=position.entry_id,
            batch_index=first if first > 0 else -1,
            inclusive=True,
        )
    )


def acknowledged_bits(unacknowledged: Sequence[int], batch_size: int) -> int:
    """Return the bit set of acknowledged messages: bit i for message i."""
    words = unacknowledged[: -(-batch_size // _WORD_BITS)]  # bits behind the last message are ignored
    left = int.from_bytes(b"".join([(word % _WORD).to_bytes(8, "little") for word in words]), "little")
    return ~left & ((1 << batch_size) - 1)


def unacknowledged_words(acknowledged: bytes, batch_size: int) -> list[int]:
    """Return the unacknowledged messages of a batch as signed words. `acknowledged`: as in `DeliveryRun`."""
    left = ~int.from_bytes(acknowledged, "little") & ((1 << batch_size) - 1)
    words = []
    while left:
        word = left % _WORD
        words.append(word - _WORD if word > _MAX_SIGNED else word)
        left >>= _WORD_BITS
    return words


def _signed(value: int) -> int:
    return value - _WORD if value > _MAX_SIGNED else value


def _first_bit(words: Sequence[int]) -> int:
    """Return the index of the lowest bit that is set; -1: none is."""
    for index, word in enumerate(words):
        if word:
            return index * _WORD_BITS + ((word & -word).bit_length() - 1)
    return -1
