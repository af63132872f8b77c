"""The list of a topic's ledgers: which entries there are, and how the list stands in the metadata.

    pages, a thousand older ledgers each │ the topic's node: closed ledgers │ perhaps an open one

Ledger ids grow, so the list is in the order of the ids and of the entries. All ledgers but the last are known to be
closed, and have entries: one that was closed empty is removed. The length of a closed ledger is stored with the next
change of the list. Until then it is in the ledger's own metadata or follows from its entries (ledger_ends.py), so a
close alone does not change the node.

Trimmed ledgers are removed from the front. `trimmed_up_to` is the position of the last entry that was ever trimmed, so
that a list without ledgers still has the position of the log. `next_index` and `last_time_ms` are those that the next
entry follows.

**Changes** are made in three steps: a `ListChange` says what changes, `encode` puts it into the node and the pages, and
when these are durable, `apply` changes the list in memory. One at a time: between `encode` and `apply` nothing changes
but the entries of the last ledger.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from operator import attrgetter
from typing import Final

from magnetar_broker.managed_ledger.lease_rules import Lease
from magnetar_broker.managed_ledger.ledger_ends import LISTED, LedgerEnds
from magnetar_broker.position import EARLIEST, Position
from magnetar_protos import managed_ledger_pb2 as pb

__all__ = ["ForeignList", "LedgerList", "ListChange", "ListedLedger", "NewPage"]

# The number of ledgers in a page, some 50 KB, and the number in the node from which on a page is made: each change of
# the list writes the whole node.
PAGE_LEDGERS: Final = 1000
MAX_LEDGERS_IN_NODE: Final = 1500
_ledger_id = attrgetter("ledger_id")


class ForeignList(ValueError):
    """The metadata contain something that no version of Magnetar has written."""


@dataclass(slots=True)
class ListedLedger:
    ledger_id: int
    is_closed: bool = False
    # The number of readable entries. Those of the current ledger are confirmed.
    entries: int = 0
    length_bytes: int = 0
    # The bytes of all ledgers before it, plus a constant of the list.
    bytes_before: int = 0
    # The number of entries in all ledgers before it, plus a constant of the list.
    rank: int = 0
    last_index: int = 0
    first_time_ms: int = 0
    last_time_ms: int = 0
    closed_ms: int = 0
    # It may hold chunks of messages. Set before it has any.
    chunks: bool = False

    @property
    def last(self) -> Position:
        return Position(self.ledger_id, self.entries - 1)

    @property
    def bytes_up_to(self) -> int:
        """The bytes of this ledger and those before it, plus the constant of the list."""
        return self.bytes_before + self.length_bytes


@dataclass(frozen=True, slots=True)
class ListChange:
    # Add this ledger, after all others.
    new_ledger: int | None = None
    # It may hold chunks of messages.
    chunks: bool = False
    # Remove the last ledger, which was closed empty.
    empty: int | None = None
    # Remove all ledgers up to this one.
    trimmed: int | None = None
    # These ledgers of `deleting` are deleted.
    deleted: frozenset[int] = frozenset()
    # Add or renew this lease. Leases are in the same node (managed_ledger/lease_rules.py).
    lease: Lease | None = None
    # Set these properties of the topic; None: remove it. They are in the same node, too.
    properties: Mapping[str, bytes | None] = field(default_factory=dict)
    # The topic's next epoch, which is in the same node, too.
    topic_epoch: pb.TopicEpoch | None = None
    # Terminate the topic: nothing is added to the list any more.
    terminates: bool = False


@dataclass(frozen=True, slots=True)
class NewPage:
    number: int
    payload: bytes


@dataclass(slots=True)
class LedgerList:
    """The ledgers of one topic, in order, as its owner knows them."""

    incarnation: str
    ledgers: list[ListedLedger] = field(default_factory=list)
    deleting: list[int] = field(default_factory=list)
    # The number, and the id of the last ledger, of each page with a ledger in the list.
    pages: list[tuple[int, int]] = field(default_factory=list)
    next_page: int = 0
    next_index: int = 0
    last_time_ms: int = 0
    # All ledgers that were ever in the list have higher ids than this.
    floor: int = 0
    trimmed_up_to: Position = EARLIEST
    # Ledgers up to this one were written before the topic got its first durable subscription: see
    # broker/magnetar_broker/managed_ledger/ledger_lifetime_rules.py.
    unsubscribed_up_to: int = 0
    # No ledger or entry is ever added any more.
    is_terminated: bool = False
    # The last readable entry, or `before_first`.
    last: Position = EARLIEST

    @classmethod
    def decode(cls, node: pb.ManagedLedgerNode, pages: Iterable[pb.LedgerPage] = ()) -> LedgerList:
        """Decode the list. `pages` are those that the node names, in that order. Raises `ForeignList`."""
        trimmed = node.trimmed_up_to
        self = cls(
            node.incarnation,
            deleting=list(node.deleting),
            pages=[(page.number, page.last_ledger_id) for page in node.pages],
            next_page=node.next_page,
            next_index=node.next_index,
            last_time_ms=node.last_time_ms,
            floor=node.floor,
            trimmed_up_to=Position(trimmed.ledger_id, trimmed.entry_id) if node.HasField("trimmed_up_to") else EARLIEST,
            unsubscribed_up_to=node.unsubscribed_up_to,
            is_terminated=node.terminated,
        )
        rank = bytes_before = 0
        for listed in [*(listed for page in pages for listed in page.ledgers), *node.ledgers]:
            if listed.ledger_id < node.first_ledger_id:
                continue
            self.ledgers.append(_listed(listed, rank, bytes_before))
            rank += listed.entries
            bytes_before += listed.length_bytes
        ids = [listed.ledger_id for listed in self.ledgers]
        if any(later <= earlier for earlier, later in pairwise(ids)):
            raise ForeignList(f"the ledgers of topic {node.incarnation} are not in order")
        if not all(listed.is_closed for listed in self.ledgers[:-1]):
            raise ForeignList(f"a ledger of topic {node.incarnation} before the last one is open")
        self._find_last()
        return self

    # ── positions ──

    @property
    def before_first(self) -> Position:
        return Position(self.ledgers[0].ledger_id, -1) if self.ledgers else self.trimmed_up_to

    @property
    def current_ledger(self) -> ListedLedger | None:
        """The last ledger, if it is not known to be closed."""
        return self.ledgers[-1] if self.ledgers and not self.ledgers[-1].is_closed else None

    def find(self, ledger_id: int) -> ListedLedger | None:
        at = bisect_left(self.ledgers, ledger_id, key=_ledger_id)
        return self.ledgers[at] if at < len(self.ledgers) and self.ledgers[at].ledger_id == ledger_id else None

    def next_ledger(self, ledger_id: int) -> int | None:
        at = bisect_left(self.ledgers, ledger_id, key=_ledger_id)
        if at + 1 >= len(self.ledgers) or self.ledgers[at].ledger_id != ledger_id:
            return None
        return self.ledgers[at + 1].ledger_id

    def holds(self, position: Position) -> bool:
        listed = self.find(position.ledger_id)
        return listed is not None and 0 <= position.entry_id < listed.entries

    def at_or_after(self, position: Position) -> Position | None:
        """Return the first entry at or after the position; None: there is none yet."""
        if position > self.last:
            return None
        for at in range(bisect_left(self.ledgers, position.ledger_id, key=_ledger_id), len(self.ledgers)):
            listed = self.ledgers[at]
            entry_id = max(0, position.entry_id) if listed.ledger_id == position.ledger_id else 0
            if entry_id < listed.entries:
                return Position(listed.ledger_id, entry_id)
        return None

    def last_before(self, position: Position) -> Position | None:
        """Return the last entry before the position; None if the list has no entry before it."""
        for listed in reversed(self.ledgers[: self._count_up_to(position.ledger_id)]):
            entries = listed.entries
            if listed.ledger_id == position.ledger_id:
                entries = min(entries, position.entry_id)
            if entries > 0:
                return Position(listed.ledger_id, entries - 1)
        return None

    def first_after(self, position: Position) -> Position:
        found = self.at_or_after(Position(position.ledger_id, position.entry_id + 1))
        if found is not None:
            return found
        last = self.current_ledger
        if last is not None:
            return Position(last.ledger_id, last.entries)
        return Position(self.last.ledger_id, self.last.entry_id + 1)

    def entries_up_to(self, position: Position) -> int:
        """Return the number of entries up to and including the position, plus a constant of the list."""
        at = bisect_left(self.ledgers, position.ledger_id, key=_ledger_id)
        if at == len(self.ledgers):
            return self.ledgers[-1].rank + self.ledgers[-1].entries if self.ledgers else 0
        listed = self.ledgers[at]
        if listed.ledger_id > position.ledger_id:
            return listed.rank
        return listed.rank + min(max(0, position.entry_id + 1), listed.entries)

    def entries_between(self, after: Position, up_to: Position) -> int:
        return max(0, self.entries_up_to(up_to) - self.entries_up_to(after))

    @property
    def entries(self) -> int:
        return self.entries_up_to(self.last) - self.ledgers[0].rank if self.ledgers else 0

    def closed_up_to(self, position: Position) -> Iterator[ListedLedger]:
        """Yield the ledgers, from the front, that are closed and end at or before the position. The last one is left
        out if it is empty."""
        for listed in self.ledgers:
            if not listed.is_closed or not listed.entries or listed.last > position:
                return
            yield listed

    def mark_unsubscribed(self) -> None:
        """Count all ledgers of the list as written without a durable subscription. The next change makes it durable."""
        if self.ledgers:
            self.unsubscribed_up_to = max(self.unsubscribed_up_to, self.ledgers[-1].ledger_id)

    # ── the last ledger ──

    def add_confirmed(
        self, position: Position, stored_bytes: int, index: int, time_ms: int, first_time_ms: int | None = None
    ) -> None:
        """Note that entries of the current ledger are persisted, up to this one. `first_time_ms` is the time of the
        first of them, if that is another one."""
        last = self.ledgers[-1]
        if not last.entries:
            last.first_time_ms = time_ms if first_time_ms is None else first_time_ms
        last.entries = position.entry_id + 1
        last.length_bytes += stored_bytes
        last.last_index = index
        last.last_time_ms = time_ms
        self.last = position

    def set_recovered(self, entries: int, ends: LedgerEnds, length_bytes: int, closed_ms: int) -> None:
        """Record that the ledger of a former session is closed, with `entries` entries, at least one."""
        last = self.ledgers[-1]
        last.entries = entries
        last.length_bytes = length_bytes
        last.last_index, last.first_time_ms, last.last_time_ms = ends
        self.last = last.last
        self.set_closed(closed_ms)

    def set_closed(self, closed_ms: int) -> None:
        """Note that the last ledger is closed at its last confirmed entry."""
        last = self.ledgers[-1]
        last.is_closed = True
        last.closed_ms = closed_ms
        if last.entries:
            self.next_index = last.last_index + 1
            self.last_time_ms = last.last_time_ms

    @property
    def properties_at_close(self) -> dict[str, bytes]:
        """Properties for the metadata of the last ledger, which its writer closes: its element of the list."""
        last = self.ledgers[-1]
        return {LISTED: _encoded(replace(last, is_closed=True)).SerializeToString()}

    @property
    def empty_ledger_id(self) -> int | None:
        """The last ledger, if it was closed empty: the next change removes it."""
        last = self.ledgers[-1] if self.ledgers else None
        return last.ledger_id if last is not None and last.is_closed and not last.entries else None

    # ── changes ──

    def encode(self, change: ListChange, node: pb.ManagedLedgerNode) -> tuple[list[NewPage], list[int]]:
        """Put the changed list into the node. Return new pages, and the numbers of pages that are to be deleted."""
        trimmed = self._count_up_to(change.trimmed)
        pages = self.pages if change.trimmed is None else [page for page in self.pages if page[1] > change.trimmed]
        deleted_pages = [number for number, _ in self.pages[: len(self.pages) - len(pages)]]
        in_node = self.ledgers[self._count_up_to(pages[-1][1]) if pages else trimmed :]
        dropped = [listed.ledger_id for listed in self.ledgers[:trimmed]]
        if in_node and in_node[-1].ledger_id == change.empty:
            dropped.append(in_node.pop().ledger_id)
        if change.new_ledger is not None:
            in_node.append(ListedLedger(change.new_ledger, chunks=change.chunks))
        new_pages: list[NewPage] = []
        if len(in_node) > MAX_LEDGERS_IN_NODE:
            paged, in_node = in_node[:PAGE_LEDGERS], in_node[PAGE_LEDGERS:]
            payload = pb.LedgerPage(ledgers=map(_encoded, paged)).SerializeToString()
            new_pages.append(NewPage(self.next_page, payload))
            pages = [*pages, (self.next_page, paged[-1].ledger_id)]
        del node.ledgers[:], node.pages[:], node.deleting[:]
        node.ledgers.extend(map(_encoded, in_node))
        node.pages.extend(pb.PageOfLedgers(number=number, last_ledger_id=last) for number, last in pages)
        node.deleting.extend(one for one in [*self.deleting, *dropped] if one not in change.deleted)
        first = self.ledgers[trimmed] if trimmed < len(self.ledgers) else None
        node.first_ledger_id = first.ledger_id if first is not None else 0
        node.next_page = self.next_page + len(new_pages)
        node.next_index = self.next_index
        node.last_time_ms = self.last_time_ms
        node.unsubscribed_up_to = self.unsubscribed_up_to
        node.terminated = self.is_terminated or change.terminates
        trimmed_up_to = self._trimmed_up_to(trimmed)
        if trimmed_up_to != EARLIEST:
            node.trimmed_up_to.ledger_id, node.trimmed_up_to.entry_id = trimmed_up_to
        return new_pages, deleted_pages

    def apply(self, change: ListChange, node: pb.ManagedLedgerNode) -> None:
        """Change the list in memory: the change is durable, and `node` is as `encode` made it."""
        trimmed = self._count_up_to(change.trimmed)
        self.trimmed_up_to = self._trimmed_up_to(trimmed)
        del self.ledgers[:trimmed]
        if self.ledgers and self.ledgers[-1].ledger_id == change.empty:
            self.ledgers.pop()
        if change.new_ledger is not None:
            rank = bytes_before = 0
            if self.ledgers:
                last = self.ledgers[-1]
                rank, bytes_before = last.rank + last.entries, last.bytes_before + last.length_bytes
            self.ledgers.append(
                ListedLedger(change.new_ledger, bytes_before=bytes_before, rank=rank, chunks=change.chunks)
            )
        self.deleting = list(node.deleting)
        self.pages = [(page.number, page.last_ledger_id) for page in node.pages]
        self.next_page = node.next_page
        self.is_terminated = node.terminated
        self._find_last()

    def _trimmed_up_to(self, trimmed: int) -> Position:
        return self.ledgers[trimmed - 1].last if trimmed else self.trimmed_up_to

    def _count_up_to(self, ledger_id: int | None) -> int:
        return 0 if ledger_id is None else bisect_left(self.ledgers, ledger_id + 1, key=_ledger_id)

    def _find_last(self) -> None:
        for listed in reversed(self.ledgers):
            if listed.entries:
                self.last = listed.last
                return
        self.last = self.before_first


def _listed(listed: pb.ListedLedger, rank: int, bytes_before: int) -> ListedLedger:
    return ListedLedger(
        listed.ledger_id,
        listed.closed,
        listed.entries,
        listed.length_bytes,
        bytes_before,
        rank,
        listed.last_index,
        listed.first_time_ms,
        listed.last_time_ms,
        listed.closed_ms,
        listed.chunks,
    )


def _encoded(listed: ListedLedger) -> pb.ListedLedger:
    if not listed.is_closed:
        return pb.ListedLedger(ledger_id=listed.ledger_id, chunks=listed.chunks)
    return pb.ListedLedger(
        ledger_id=listed.ledger_id,
        closed=True,
        entries=listed.entries,
        length_bytes=listed.length_bytes,
        last_index=listed.last_index,
        first_time_ms=listed.first_time_ms,
        last_time_ms=listed.last_time_ms,
        closed_ms=listed.closed_ms,
        chunks=listed.chunks,
    )
