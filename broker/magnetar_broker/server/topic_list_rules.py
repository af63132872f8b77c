"""The rules of topic lists: their hash, patterns, and the differences of two lists.

**The hash** is Pulsar's, so that a client that has a list from one broker can ask another broker whether it has
changed: the CRC-32C of the names, sorted as Java sorts strings (by UTF-16 code units) and joined by commas, as
hexadecimal digits with the lowest byte first.

**Patterns** come from clients, and are matched against every name. They are RE2's, as in Pulsar: matching takes bounded
time per character of a name, and bounded memory. A pattern matches a whole topic name, without its domain and without
its partition suffix: `persistent://public/default/orders-.*` matches partition
`persistent://public/default/orders-eu-partition-3`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from typing import Final, Protocol

import crc32c

from magnetar_wire.topic_name import TopicDomain

__all__ = ["Difference", "ListChange", "Listing", "TopicPattern", "UnusablePattern", "differences", "split_names"]

_SEPARATOR: Final = "://"
_PARTITION: Final = "-partition-"
_ALL: Final = ".*"
# Size of the names in one update.
_UPDATE_BYTES: Final = 262_144
# Memory of a compiled pattern. The slowest pattern within it takes some milliseconds for the longest name.
_PATTERN_BYTES: Final = 131_072
# Added to the size of a name in a frame: its tag and its length.
_NAME_HEAD_BYTES: Final = 4


class _Regex(Protocol):
    def fullmatch(self, text: str) -> object | None: ...


class UnusablePattern(Exception):
    """The pattern can't be matched by the broker. The client may be able to match it."""


class TopicPattern:
    __slots__ = ("_domain", "_regex", "text")

    def __init__(self, text: str, max_length: int, domain: TopicDomain | None = None) -> None:
        """`domain`: that of the topics; None: both. Raises `UnusablePattern`."""
        self.text = _without_domain(text)
        self._domain = "" if domain is None else f"{domain}{_SEPARATOR}"
        if len(self.text) > max_length:
            raise UnusablePattern(
                f"the pattern has {len(self.text)} characters, more than subscription_pattern_max_length = "
                f"{max_length}: use a shorter one"
            )
        # None: it matches all names.
        self._regex = None if self.text == _ALL else _compiled(self.text)

    @property
    def key(self) -> tuple[str, str]:
        """Equal for patterns that match the same names."""
        return self._domain, self.text

    def matches(self, name: str) -> bool:
        """Return whether the pattern matches a topic's full name."""
        if not name.startswith(self._domain):
            return False
        return self._regex is None or self._regex.fullmatch(_matched_part(name)) is not None


@dataclass(frozen=True, slots=True)
class Listing:
    """Sorted names and their hash."""

    names: tuple[str, ...]
    hash: str

    @classmethod
    def of(cls, names: Iterable[str]) -> Listing:
        in_order = _sorted(names)
        return cls(tuple(in_order), _hash_of(in_order))

    @property
    def bytes(self) -> int:
        """Size of the names in a frame."""
        return _size_of(self.names)


@dataclass(frozen=True, slots=True)
class Difference:
    """As many changes as fit into one frame."""

    new: Sequence[str]
    deleted: Sequence[str]


class ListChange:
    """What changed between two lists, for all watchers that have the first one."""

    __slots__ = ("_encoded", "listing", "pieces")

    def __init__(self, before: Listing, listing: Listing) -> None:
        self.listing = listing
        self.pieces = tuple(differences(before.names, listing.names, _UPDATE_BYTES))
        self._encoded: dict[Callable[[Difference, str], bytes], list[bytes]] = {}

    def encode(self, encode: Callable[[Difference, str], bytes]) -> Sequence[bytes]:
        """Return all pieces, encoded by a protocol's function of a piece and the list's hash. Each function is called
        once."""
        if encode not in self._encoded:
            self._encoded[encode] = [encode(piece, self.listing.hash) for piece in self.pieces]
        return self._encoded[encode]


def differences(before: Collection[str], after: Collection[str], max_bytes: int) -> Iterator[Difference]:
    """Yield the changes from `before` to `after`: deletions first."""
    deleted, new = _lacking(before, after), _lacking(after, before)
    for piece in split_names(deleted, max_bytes):
        yield Difference([], piece)
    for piece in split_names(new, max_bytes):
        yield Difference(piece, [])


def _lacking(names: Collection[str], others: Collection[str]) -> list[str]:
    others = others if isinstance(others, Set) else frozenset(others)
    return [name for name in names if name not in others]


def split_names(names: Iterable[str], max_bytes: int = _UPDATE_BYTES) -> Iterator[list[str]]:
    """Yield the names in pieces, each of which fits into one frame."""
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
    return sum(len(name if name.isascii() else name.encode()) + _NAME_HEAD_BYTES for name in names)


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
    """Remove the domain: `^persistent://…` matches like `^…`."""
    before, separator, rest = pattern.partition(_SEPARATOR)
    if not separator:
        return pattern
    for domain in (TopicDomain.NON_PERSISTENT, TopicDomain.PERSISTENT):
        if before.endswith(domain) and _SEPARATOR not in rest:
            return before.removesuffix(domain) + rest
    raise UnusablePattern(f"pattern {pattern!r:.100} has an invalid domain: use persistent://tenant/namespace/…")


def _compiled(text: str) -> _Regex:
    import re2  # not at the top: a broker whose clients send no patterns does not need it

    options = re2.Options()
    options.max_mem = _PATTERN_BYTES
    options.never_capture = True
    options.log_errors = False
    try:
        regex: _Regex = re2.compile(text, options)
    except re2.error as error:
        [reason] = error.args
        why = reason.decode(errors="replace") if isinstance(reason, bytes) else reason
        raise UnusablePattern(f"pattern {text!r:.100} is not supported by RE2: {why}") from None
    return regex
