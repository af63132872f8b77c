"""The value of a node that is changed by compare-and-set: the payload, and who wrote the last few versions.

    format (1) · number of tokens (1) · incarnation (8) · tokens (8 each), newest first · payload

Every version is written with a token of its own, drawn at random. Versions count up by one, and all writers keep the
tokens before theirs, so the token of version v stands at place `current version - v`: that is how a writer whose answer
was lost finds out whether a version is its own. Only the last `KEPT_TOKENS` are kept.

The incarnation is the token of the node's first version. A node that was deleted and made again starts at version 0
with another incarnation; without it a version of the new node could be taken for one of the old.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final

from magnetar_metadata.errors import ForeignValue
from magnetar_metadata.store import ABSENT, MAX_VALUE_BYTES

TOKEN_BYTES: Final = 8
KEPT_TOKENS: Final = 16
MAX_PAYLOAD_BYTES: Final = MAX_VALUE_BYTES - 2 - TOKEN_BYTES * (1 + KEPT_TOKENS)
_FORMAT: Final = 1


@dataclass(frozen=True, slots=True)
class Envelope:
    """A decoded value."""

    incarnation: bytes
    # The writers' tokens, the newest first; at least one.
    writers: tuple[bytes, ...]
    payload: bytes

    def encode(self) -> bytes:
        return b"".join((bytes((_FORMAT, len(self.writers))), self.incarnation, *self.writers, self.payload))


class Verdict(enum.Enum):
    """Whether a change whose answer was lost is the one that made its version."""

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
    writers = tuple(value[place : place + TOKEN_BYTES] for place in range(start, end, TOKEN_BYTES))
    return Envelope(value[2:start], writers, value[end:])


def following(old: Envelope | None, token: bytes, payload: bytes) -> Envelope:
    """The next version of a node, or the first."""
    if old is None:
        return Envelope(token, (token,), payload)
    return Envelope(old.incarnation, (token, *old.writers[: KEPT_TOKENS - 1]), payload)


def judge_put(written: Envelope, expected: int, current: Envelope | None, current_version: int) -> Verdict:
    """Whether `written`, put at `expected`, is in the history of what a fresh read shows.

    Worked example: A put at expected 4 and lost the answer. The node is at version 7, its tokens are (z, y, x, w, …).
    A's version would be 5, which is at place 7 - 5 = 2: x. If x is A's token, A's change was made and two others after
    it. If not, somebody else made version 5 and A's change can't be made any more.
    """
    if current is None:
        return Verdict.UNKNOWN
    if expected == ABSENT:
        # The first token is kept for ever, as the incarnation.
        return Verdict.OURS if current.incarnation == written.incarnation else Verdict.NOT_OURS
    if current.incarnation != written.incarnation:
        return Verdict.UNKNOWN
    place = current_version - (expected + 1)
    if not 0 <= place < len(current.writers):
        return Verdict.UNKNOWN
    return Verdict.OURS if current.writers[place] == written.writers[0] else Verdict.NOT_OURS


def judge_delete(incarnation: bytes, current: Envelope | None) -> Verdict:
    """Whether a delete was made: not if the same incarnation is still there."""
    same = current is not None and current.incarnation == incarnation
    return Verdict.NOT_OURS if same else Verdict.UNKNOWN
