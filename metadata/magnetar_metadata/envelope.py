"""The value of a node that is changed by compare-and-set: the payload, and tokens of the writers of its last versions.

    format (1) · number of tokens (1) · incarnation (8) · tokens (8 each), newest first · payload

Each version is written with its own random token. Versions grow by one, and writers keep the earlier tokens, so the
token of version v has the index `current version - v`. With it, a writer whose answer was lost finds out whether a
version is its own. Only the last `STORED_TOKENS` tokens are stored.

The incarnation is the token of the node's first version. A node that is deleted and created again starts at version 0
with another incarnation. Without it, a version of the new node could be confused with one of the old node.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final

from magnetar_metadata.errors import ForeignValue
from magnetar_metadata.store import ABSENT, MAX_VALUE_BYTES

TOKEN_BYTES: Final = 8
STORED_TOKENS: Final = 16
MAX_PAYLOAD_BYTES: Final = MAX_VALUE_BYTES - 2 - TOKEN_BYTES * (1 + STORED_TOKENS)
_FORMAT: Final = 1


@dataclass(frozen=True, slots=True)
class Envelope:
    """A decoded value."""

    incarnation: bytes
    # The writers' tokens, newest first; at least one.
    writers: tuple[bytes, ...]
    payload: bytes

    def encode(self) -> bytes:
        return b"".join((bytes((_FORMAT, len(self.writers))), self.incarnation, *self.writers, self.payload))


class Verdict(enum.Enum):
    """Whether a version was written by a change whose answer was lost."""

    OURS = "ours"
    NOT_OURS = "not ours"
    UNKNOWN = "unknown"


def decode(value: bytes) -> Envelope:
    if len(value) < 2 or value[0] != _FORMAT:
        raise ForeignValue(
            f"the value begins with {value[:1].hex() or 'nothing'}, not with the format byte {_FORMAT:02x}"
        )
    start = 2 + TOKEN_BYTES
    end = start + value[1] * TOKEN_BYTES
    if value[1] == 0 or len(value) < end:
        raise ForeignValue(
            f"the value is truncated: {len(value)} bytes are too few for the tokens of {value[1]} writers"
        )
    writers = tuple(value[at : at + TOKEN_BYTES] for at in range(start, end, TOKEN_BYTES))
    return Envelope(value[2:start], writers, value[end:])


def next_envelope(old: Envelope | None, token: bytes, payload: bytes) -> Envelope:
    """Return the envelope of the node's next version, or of its first one."""
    if old is None:
        return Envelope(token, (token,), payload)
    return Envelope(old.incarnation, (token, *old.writers[: STORED_TOKENS - 1]), payload)


def judge_put(written: Envelope, expected: int, current: Envelope | None, current_version: int) -> Verdict:
    """Decide whether `written`, put at the version `expected`, is in the history of a node that was read after a sync.

    Example: writer A has put at version 4, and the answer was lost. The node has version 7 and the tokens
    (z, y, x, w, …). A's version would be 5, whose token has the index 7 - 5 = 2: x. If x is A's token, A's change was
    made, and two others after it. If not, another writer made version 5, and A's change can't be made any more.
    """
    if current is None:
        return Verdict.UNKNOWN
    if expected == ABSENT:
        # The first token is always stored, as the incarnation.
        return Verdict.OURS if current.incarnation == written.incarnation else Verdict.NOT_OURS
    if current.incarnation != written.incarnation:
        return Verdict.UNKNOWN
    index = current_version - (expected + 1)
    if not 0 <= index < len(current.writers):
        return Verdict.UNKNOWN
    return Verdict.OURS if current.writers[index] == written.writers[0] else Verdict.NOT_OURS


def judge_delete(incarnation: bytes, current: Envelope | None) -> Verdict:
    """Decide whether a delete was made: it was not if the same incarnation still exists."""
    same = current is not None and current.incarnation == incarnation
    return Verdict.NOT_OURS if same else Verdict.UNKNOWN
