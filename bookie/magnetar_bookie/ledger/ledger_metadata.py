"""The metadata of a ledger, and every change that may be made to it.

    OPEN ──► CLOSED                   the writer closes it
    OPEN ──► IN_RECOVERY ──► CLOSED   another client recovers it
    any  ──► TOMBSTONE ──► (no node)  it is deleted; its node is removed when all holders have dropped their entries

Each function that changes metadata gets the stored value and returns the new one, or raises why the change is not
allowed. The compare-and-set loop (`LedgerMetadataStore.change_metadata`) calls it again for each newer value. So the
preconditions of a change are checked on the value that it replaces, and not by version: a bookie that adds itself to
`former_bookies` disturbs no other change.

Who may change what
-------------------
The last fragment of an OPEN ledger is changed only by the writer, not even by repair (ledger_repair_rules.py). In an
IN_RECOVERY ledger nobody changes it, since recoveries rely on it. Several may run at a time, and the first close
counts. Earlier fragments contain only confirmed entries, and repair may replace their bookies at any time; in a CLOSED
ledger, those of all fragments.

A fragment that would begin above the ledger's last entry is dropped by the close. An empty ledger has no fragments.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from types import MappingProxyType

from google.protobuf.message import DecodeError

from magnetar_bookie.errors import LedgerDeleted, LedgerError, LedgerFenced, NoSuchLedger
from magnetar_bookie.read.record import NO_ENTRY
from magnetar_bookie.read.striping import Fragment, Striping
from magnetar_protos import ledger_pb2

__all__ = ["FragmentChanged", "LedgerAlreadyClosed", "LedgerMetadata", "LedgerState"]


class LedgerState(enum.Enum):
    """The state of a ledger, as stored."""

    OPEN = ledger_pb2.OPEN
    IN_RECOVERY = ledger_pb2.IN_RECOVERY
    CLOSED = ledger_pb2.CLOSED
    TOMBSTONE = ledger_pb2.TOMBSTONE


class LedgerAlreadyClosed(LedgerError):
    """Another client closed the ledger first, with this `metadata`."""

    def __init__(self, metadata: LedgerMetadata) -> None:
        super().__init__(f"the ledger was closed by another client at entry {metadata.last_entry_id}")
        self.metadata = metadata


class FragmentChanged(LedgerError):
    """A fragment was changed since the caller read it: read the metadata again."""


@dataclass(frozen=True, slots=True)
class LedgerMetadata:
    """The metadata of one ledger."""

    state: LedgerState
    striping: Striping
    master_key: bytes
    fragments: tuple[Fragment, ...]
    # Meaningful once the ledger is closed, except `created_ms`.
    last_entry_id: int = NO_ENTRY
    length_bytes: int = 0
    created_ms: int = 0
    closed_ms: int = 0
    # More than `striping.ensemble_size` if too few bookies were available.
    wanted_ensemble_size: int = 0
    # Bookies that may have entries although no fragment contains them.
    former_bookies: tuple[str, ...] = ()
    # Of a tombstone: the bookies that have not dropped their entries yet.
    holders: tuple[str, ...] = ()
    properties: Mapping[str, bytes] = field(default_factory=dict)

    @property
    def is_closed(self) -> bool:
        return self.state is LedgerState.CLOSED

    @property
    def is_degraded(self) -> bool:
        """Whether the ensemble is smaller than requested."""
        return self.striping.ensemble_size < self.wanted_ensemble_size

    @property
    def last_fragment(self) -> Fragment:
        return self.fragments[-1]

    def last_entry_of_fragment(self, index: int) -> int | None:
        """Return the last entry of the fragment at this index; None: entries may still be added to it."""
        if index + 1 < len(self.fragments):
            return self.fragments[index + 1].first_entry_id - 1
        return self.last_entry_id if self.is_closed else None

    def list_final_entries(self, bookie_id: str, entry_ids: Iterable[int]) -> list[int]:
        """Return those of the entries that are final and that the bookie must have: repair may write them to it."""
        if self.state is LedgerState.TOMBSTONE:
            return []
        # The first and last entry of each final fragment with the bookie, and its slot.
        slots = [
            (fragment.first_entry_id, last, fragment.bookies.index(bookie_id))
            for index, fragment in enumerate(self.fragments)
            if bookie_id in fragment.bookies and (last := self.last_entry_of_fragment(index)) is not None
        ]
        return [
            entry_id
            for entry_id in entry_ids
            if any(first <= entry_id <= last and self.striping.holds(slot, entry_id) for first, last, slot in slots)
        ]

    def bookies(self) -> list[str]:
        """Return the bookies of all fragments, without duplicates, in the order of their first occurrence."""
        return list(dict.fromkeys(bookie for fragment in self.fragments for bookie in fragment.bookies))

    def encode(self) -> bytes:
        message = ledger_pb2.LedgerMetadata(
            state=self.state.value,
            ensemble_size=self.striping.ensemble_size,
            write_quorum=self.striping.write_quorum,
            ack_quorum=self.striping.ack_quorum,
            master_key=self.master_key,
            fragments=[
                ledger_pb2.Fragment(first_entry_id=fragment.first_entry_id, bookies=fragment.bookies)
                for fragment in self.fragments
            ],
            last_entry_id=self.last_entry_id,
            length_bytes=self.length_bytes,
            created_ms=self.created_ms,
            closed_ms=self.closed_ms,
            wanted_ensemble_size=self.wanted_ensemble_size,
            former_bookies=self.former_bookies,
            holders=self.holders,
            properties=self.properties,
        )
        return message.SerializeToString(deterministic=True)


@lru_cache(maxsize=256)
def decode_metadata(payload: bytes) -> LedgerMetadata:
    """Return the metadata in a node. Raises `LedgerError` if they are malformed.

    Cached, since garbage collector, auditor and checks read the same bytes again and again.
    """
    try:
        message = ledger_pb2.LedgerMetadata.FromString(payload)
        state = LedgerState(message.state)
        striping = Striping(message.ensemble_size, message.write_quorum, message.ack_quorum)
    except (DecodeError, ValueError) as error:
        raise LedgerError(f"the metadata of a ledger can't be decoded: {error}") from None
    fragments = tuple(Fragment(fragment.first_entry_id, tuple(fragment.bookies)) for fragment in message.fragments)
    _check_fragments(fragments, striping)
    if not fragments and state in (LedgerState.OPEN, LedgerState.IN_RECOVERY):
        raise LedgerError("the metadata of an open ledger have no fragment")
    return LedgerMetadata(
        state=state,
        striping=striping,
        master_key=message.master_key,
        fragments=fragments,
        last_entry_id=message.last_entry_id,
        length_bytes=message.length_bytes,
        created_ms=message.created_ms,
        closed_ms=message.closed_ms,
        wanted_ensemble_size=message.wanted_ensemble_size,
        former_bookies=tuple(message.former_bookies),
        holders=tuple(message.holders),
        properties=MappingProxyType(dict(message.properties)),
    )


def _check_fragments(fragments: Sequence[Fragment], striping: Striping) -> None:
    firsts = [fragment.first_entry_id for fragment in fragments]
    if firsts and (firsts[0] != 0 or sorted(set(firsts)) != firsts):
        raise LedgerError(f"the fragments of a ledger begin at entries {firsts}, which do not ascend from 0")
    if any(len(set(fragment.bookies)) != striping.ensemble_size for fragment in fragments):
        raise LedgerError(f"a fragment does not have {striping.ensemble_size} different bookies")


def replace_last_fragment(current: LedgerMetadata | None, fragment: Fragment) -> LedgerMetadata:
    """Change the ensemble, by the writer: from the fragment's first entry on, its bookies store the ledger."""
    current = _check_open(current)
    return replace(
        current,
        fragments=_append_fragment(current.fragments, fragment),
        former_bookies=_add_former(current, current.last_fragment.bookies, fragment.bookies),
    )


def close_by_writer(
    current: LedgerMetadata | None, last: int, length: int, now_ms: int, properties: Mapping[str, bytes] | None = None
) -> LedgerMetadata:
    """Close the ledger, by the writer, at its LAC. `properties` are added.

    Raises `LedgerFenced` if another client has recovered, closed or deleted it.
    """
    current = _check_open(current)
    return _close(replace(current, properties={**current.properties, **(properties or {})}), last, length, now_ms)


def start_recovery(current: LedgerMetadata | None) -> LedgerMetadata:
    """Change OPEN to IN_RECOVERY. A later state stays. Recovery is based on the result."""
    current = _check_exists(current)
    return replace(current, state=LedgerState.IN_RECOVERY) if current.state is LedgerState.OPEN else current


def close_by_recovery(
    current: LedgerMetadata | None,
    last_fragment: Fragment,
    own_fragments: Sequence[Fragment],
    last: int,
    length: int,
    now_ms: int,
) -> LedgerMetadata:
    """Close the ledger, by a recovery. `last_fragment` was the last one when the recovery began, and `own_fragments`
    are those that it wrote to instead.

    Raises `LedgerAlreadyClosed`, and `FragmentChanged` if the ledger's last fragment is another one.
    """
    current = _check_exists(current)
    if current.is_closed:
        raise LedgerAlreadyClosed(current)
    if current.state is not LedgerState.IN_RECOVERY or current.last_fragment != last_fragment:
        raise FragmentChanged("the ledger's last fragment changed during its recovery")
    fragments = current.fragments
    for fragment in own_fragments:
        fragments = _append_fragment(fragments, fragment)
    written_to = [bookie for fragment in own_fragments for bookie in (*last_fragment.bookies, *fragment.bookies)]
    former = _add_former(current, written_to, fragments[-1].bookies)
    return _close(replace(current, fragments=fragments, former_bookies=former), last, length, now_ms)


def replace_bookie(
    current: LedgerMetadata | None, first_entry_id: int, slot: int, old: str, new: str
) -> LedgerMetadata:
    """Replace a bookie in a fragment, by repair, which has copied the entries. The fragment must be final."""
    current = _check_exists(current)
    firsts = [fragment.first_entry_id for fragment in current.fragments]
    if first_entry_id not in firsts:
        raise FragmentChanged(f"no fragment begins at entry {first_entry_id} any more")
    index = firsts.index(first_entry_id)
    fragment = current.fragments[index]
    if fragment.bookies[slot] != old or new in fragment.bookies:
        raise FragmentChanged(f"the fragment from entry {first_entry_id} on has other bookies now")
    if current.last_entry_of_fragment(index) is None:
        raise FragmentChanged("the last fragment of an open ledger may be changed only by its writer")
    bookies = (*fragment.bookies[:slot], new, *fragment.bookies[slot + 1 :])
    fragments = (*current.fragments[:index], Fragment(first_entry_id, bookies), *current.fragments[index + 1 :])
    return replace(current, fragments=fragments, former_bookies=_add_former(current, (old,), ()))


def add_holders(current: LedgerMetadata | None, *bookies: str) -> LedgerMetadata:
    """Add bookies that have entries or will get some, so that the deletion of the ledger waits for them, too."""
    current = _check_exists(current)
    named = (*current.former_bookies, *current.bookies())
    new = [bookie for bookie in dict.fromkeys(bookies) if bookie not in named]
    return replace(current, former_bookies=(*current.former_bookies, *new)) if new else current


def add_recovery_holders(current: LedgerMetadata | None, bookies: Iterable[str]) -> LedgerMetadata:
    """Add bookies that a recovery is about to write to. Raises `LedgerAlreadyClosed`."""
    if current is not None and current.is_closed:
        raise LedgerAlreadyClosed(current)
    return add_holders(current, *bookies)


def make_tombstone(current: LedgerMetadata | None) -> LedgerMetadata:
    """Delete the ledger: all bookies that may have entries are to drop them."""
    if current is None:
        raise NoSuchLedger("the ledger does not exist")
    if current.state is LedgerState.TOMBSTONE:
        return current
    holders = tuple(dict.fromkeys((*current.bookies(), *current.former_bookies)))
    return replace(current, state=LedgerState.TOMBSTONE, holders=holders)


def remove_holders(current: LedgerMetadata, bookies: Iterable[str]) -> LedgerMetadata:
    """Remove bookies from a tombstone that have dropped the ledger, or don't exist any more."""
    removed = set(bookies)
    return replace(current, holders=tuple(bookie for bookie in current.holders if bookie not in removed))


def _check_exists(current: LedgerMetadata | None) -> LedgerMetadata:
    if current is None:
        raise NoSuchLedger("the ledger does not exist")
    if current.state is LedgerState.TOMBSTONE:
        raise LedgerDeleted("the ledger was deleted")
    return current


def _check_open(current: LedgerMetadata | None) -> LedgerMetadata:
    """Return the metadata if the writer may change them. Raises `LedgerFenced`, also for a deleted ledger."""
    if current is None or current.state is not LedgerState.OPEN:
        state = "deleted" if current is None else current.state.name
        raise LedgerFenced(f"the ledger is {state}, not OPEN: another client has taken it over")
    return current


def _close(current: LedgerMetadata, last: int, length: int, now_ms: int) -> LedgerMetadata:
    fragments = tuple(fragment for fragment in current.fragments if fragment.first_entry_id <= last)
    remaining = {bookie for fragment in fragments for bookie in fragment.bookies}
    removed = [bookie for bookie in current.bookies() if bookie not in remaining]
    return replace(
        current,
        state=LedgerState.CLOSED,
        fragments=fragments,
        last_entry_id=last,
        length_bytes=length,
        closed_ms=now_ms,
        former_bookies=_add_former(current, removed, ()),
    )


def _append_fragment(fragments: tuple[Fragment, ...], fragment: Fragment) -> tuple[Fragment, ...]:
    """Append the fragment. It replaces a last one with the same first entry, which has no confirmed entries."""
    if fragment.first_entry_id < fragments[-1].first_entry_id:
        raise FragmentChanged(f"a fragment from {fragment.first_entry_id} lies before the last one's first entry")
    earlier = fragments[:-1] if fragments[-1].first_entry_id == fragment.first_entry_id else fragments
    return (*earlier, fragment)


def _add_former(current: LedgerMetadata, old: Iterable[str], new: Iterable[str]) -> tuple[str, ...]:
    """Return the former bookies with those of `old` that are not in `new`. A bookie of a fragment may be one, too."""
    remaining = set(new)
    return tuple(dict.fromkeys((*current.former_bookies, *(bookie for bookie in old if bookie not in remaining))))
