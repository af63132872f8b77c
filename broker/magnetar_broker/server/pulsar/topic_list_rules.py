"""Lists of a namespace's topics: their hash, which of them a pattern means, and what has changed between two.

**The hash** is Pulsar's, so that a client may have a list from one broker and ask another whether it is still so: the
CRC-32C of the names, sorted as Java sorts text (by its UTF-16 units) and joined by commas, as hexadecimal digits with
the lowest byte first.

**Patterns** come from the network, and are held against every name there is. So they are RE2's, as on Pulsar: nothing
that one can say in those takes more than a bounded time for each character of a name, or more than a bounded memory. A
pattern means a topic whole, without its domain and without the suffix of a partition:
`persistent://public/default/orders-.*` means partition `persistent://public/default/orders-eu-partition-3`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from typing import Final, Protocol

import crc32c

from magnetar_wire.topic_name import TopicDomain

__all__ = ["Difference", "Listing", "TopicPattern", "UnusablePattern", "differences"]

_SEPARATOR: Final = "://"
_PARTITION: Final = "-partition-"
_EVERYTHING: Final = ".*"
# Of what RE2 makes of a pattern: the worst that fits takes some milliseconds for the longest name.
_PATTERN_BYTES: Final = 131_072
# Of a name in a frame, besides its own bytes: what kind of field it is, and how long.
_AROUND_NAME_BYTES: Final = 4


class _Regex(Protocol):
    def fullmatch(self, text: str) -> object | None: ...


class UnusablePattern(Exception):
    """It can't be held against names here; a client may be able to."""


class TopicPattern:
    """Raises `UnusablePattern`."""

    __slots__ = ("_regex", "text")

    def __init__(self, text: str, max_length: int) -> None:
        self.text = _without_domain(text)
        if len(self.text) > max_length:
            raise UnusablePattern(
                f"a pattern of {len(self.text)} characters is too long: subscription_pattern_max_length is {max_length}"
            )
        # None: it means everything.
        self._regex = None if self.text == _EVERYTHING else _compiled(self.text)

    def means(self, name: str) -> bool:
        """`name` is a topic's full name."""
        return self._regex is None or self._regex.fullmatch(_matched_part(name)) is not None


@dataclass(frozen=True, slots=True)
class Listing:
    """Names, sorted, and their hash."""

    names: tuple[str, ...]
    hash: str

    @classmethod
    def of(cls, names: Iterable[str]) -> Listing:
        in_order = _sorted(names)
        return cls(tuple(in_order), _hash_of(in_order))

    @property
    def bytes(self) -> int:
        """In a frame."""
        return _size_of(self.names)


@dataclass(frozen=True, slots=True)
class Difference:
    """As much of one as a frame may have."""

    new: Sequence[str]
    deleted: Sequence[str]


def differences(before: Collection[str], after: Collection[str], max_bytes: int) -> Iterator[Difference]:
    """What makes `after` of `before`: first all that is gone."""
    gone, new = _lacking(before, after), _lacking(after, before)
    for piece in _pieces(gone, max_bytes):
        yield Difference([], piece)
    for piece in _pieces(new, max_bytes):
        yield Difference(piece, [])


def _lacking(names: Collection[str], others: Collection[str]) -> list[str]:
    others = others if isinstance(others, Set) else frozenset(others)
    return [name for name in names if name not in others]


def _pieces(names: Sequence[str], max_bytes: int) -> Iterator[list[str]]:
    piece: list[str] = []
    size = 0
    for name in names:
        name_bytes = _size_of((name,))
        if piece and size + name_bytes > max_bytes:
            yield piece
            piece, size = [], 0
        piece.append(name)
        size += name_bytes
    if piece:
        yield piece


def _size_of(names: Iterable[str]) -> int:
    return sum(len(name if name.isascii() else name.encode()) + _AROUND_NAME_BYTES for name in names)


def _sorted(names: Iterable[str]) -> list[str]:
    listed = list(names)
    if all(map(str.isascii, listed)):
        return sorted(listed)
    return sorted(listed, key=lambda name: name.encode("utf-16-be"))


def _hash_of(in_order: Sequence[str]) -> str:
    return crc32c.crc32c(",".join(in_order).encode()).to_bytes(4, "little").hex()


def _matched_part(name: str) -> str:
    without_domain = name[name.index(_SEPARATOR) + len(_SEPARATOR) :]
    base, suffix, index = without_domain.rpartition(_PARTITION)
    is_partition = suffix and not base.endswith("/") and index.isascii() and index.isdigit()
    return base if is_partition and str(int(index)) == index else without_domain


def _without_domain(pattern: str) -> str:
    """`^persistent://…` means what `^…` does: what stands before the domain stays."""
    before, separator, rest = pattern.partition(_SEPARATOR)
    if not separator:
        return pattern
    for domain in (TopicDomain.NON_PERSISTENT, TopicDomain.PERSISTENT):
        if before.endswith(domain) and _SEPARATOR not in rest:
            return before.removesuffix(domain) + rest
    raise UnusablePattern(f"pattern {pattern!r:.100} has a domain that is none: write persistent://tenant/namespace/…")


def _compiled(text: str) -> _Regex:
    import re2  # a broker whose clients send no patterns does without

    options = re2.Options()
    options.max_mem = _PATTERN_BYTES
    options.never_capture = True
    options.log_errors = False
    try:
        regex: _Regex = re2.compile(text, options)
    except re2.error as error:
        [reason] = error.args
        why = reason.decode(errors="replace") if isinstance(reason, bytes) else reason
        raise UnusablePattern(f"pattern {text!r:.100} is none that RE2 takes: {why}") from None
    return regex
