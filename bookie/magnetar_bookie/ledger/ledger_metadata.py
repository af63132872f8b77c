"""What the metadata store says of a ledger, and every change that may be made to it.

    OPEN ──► CLOSED                   the writer closes
    OPEN ──► IN_RECOVERY ──► CLOSED   somebody else does
    any  ──► TOMBSTONE ──► (no node)  deleted; the node goes when every holder has dropped the ledger

Each function below takes what stands there now and returns what is to stand there, or raises why not; it goes through
the compare-and-set loop, which calls it again for each value that turns out to be current. So what a change relies on
is checked here, on the value that it replaces, and not by version: a bookie that adds itself to `former_bookies`
disturbs nobody.

Who may change what
-------------------
While a ledger is OPEN its last fragment is the writer's alone: nobody else changes it (repair neither, see
repair.py). IN_RECOVERY freezes all that the recoverers rely on, the last fragment; several may recover at a time, and
the first close counts. Fragments before the last hold confirmed entries only, and repair may replace bookies in them at
any time. In a CLOSED ledger it may in all of them.

A fragment that would begin above the ledger's last entry is left out at the close; an empty ledger has none.
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
    OPEN = ledger_pb2.OPEN
    IN_RECOVERY = ledger_pb2.IN_RECOVERY
    CLOSED = ledger_pb2.CLOSED
    TOMBSTONE = ledger_pb2.TOMBSTONE


class LedgerAlreadyClosed(LedgerError):
    """The ledger was closed by another than the one who wanted to: `metadata` counts."""

    def __init__(self, metadata: LedgerMetadata) -> None:
        super().__init__(f"the ledger was closed by another client at entry {metadata.last_entry_id}")
        self.metadata = metadata


class FragmentChanged(LedgerError):
    """The fragment is not any more what the change was based on: look again."""


@dataclass(frozen=True, slots=True)
class LedgerMetadata:
    """One ledger's."""

    state: LedgerState
    striping: Striping
    master_key: bytes
    fragments: tuple[Fragment, ...]
    # Of a closed ledger.
    last_entry_id: int = NO_ENTRY
    length_bytes: int = 0
    created_ms: int = 0
    closed_ms: int = 0
    # More than `striping.ensemble_size` where too few bookies were alive.
    wanted_ensemble_size: int = 0
    # Bookies that may hold entries though no fragment names them.
    former_bookies: tuple[str, ...] = ()
    # Of a tombstone: the bookies that have not dropped the ledger yet.
    holders: tuple[str, ...] = ()
    properties: Mapping[str, bytes] = field(default_factory=dict)

    @property
    def closed(self) -> bool:
        return self.state is LedgerState.CLOSED

    @property
    def degraded(self) -> bool:
        """Made with fewer bookies than were asked for."""
        return self.striping.ensemble_size < self.wanted_ensemble_size

    @property
    def last_fragment(self) -> Fragment:
        return self.fragments[-1]

    def last_entry_of_fragment(self, index: int) -> int | None:
        """The last entry of the fragment at this index, None for that which still grows."""
        if index + 1 < len(self.fragments):
            return self.fragments[index + 1].first_entry_id - 1
        return self.last_entry_id if self.closed else None

    def bookies(self) -> list[str]:
        """All that a fragment names, once each, in the order of first mention."""
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
def decode(payload: bytes) -> LedgerMetadata:
    """Raises `LedgerError` for what no version of ours has written.

    The same bytes are read again and again, by collector, auditor and checker: what came of them is kept for a while.
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
        raise LedgerError("the metadata of an open ledger name no bookies")
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
        raise LedgerError(f"a fragment does not name {striping.ensemble_size} different bookies")


def replace_last_fragment(current: LedgerMetadata | None, fragment: Fragment) -> LedgerMetadata:
    """The writer's: from this entry on the ledger is written to these bookies."""
    current = _to_be_written(current)
    return replace(
        current,
        fragments=_with_last_fragment(current.fragments, fragment),
        former_bookies=_with_former(current, current.last_fragment.bookies, fragment.bookies),
    )


def close_by_writer(
    current: LedgerMetadata | None, last: int, length: int, now_ms: int, properties: Mapping[str, bytes] | None = None
) -> LedgerMetadata:
    """The writer's close at its LAC, with properties of its owner's.

    Raises `LedgerFenced` where somebody else was there before.
    """
    current = _to_be_written(current)
    return _closed(replace(current, properties={**current.properties, **(properties or {})}), last, length, now_ms)


def start_recovery(current: LedgerMetadata | None) -> LedgerMetadata:
    """OPEN becomes IN_RECOVERY; anything later stays. The result is what recovery is based on."""
    current = _existing(current)
    return replace(current, state=LedgerState.IN_RECOVERY) if current.state is LedgerState.OPEN else current


def close_by_recovery(
    current: LedgerMetadata | None,
    begun_with: Fragment,
    own_fragments: Sequence[Fragment],
    last: int,
    length: int,
    now_ms: int,
) -> LedgerMetadata:
    """What a recovery found, and the ensembles that it wrote to instead of `begun_with`, the last one when it began.

    Raises `LedgerAlreadyClosed` with what counts, or `FragmentChanged` where the recovery was based on something else.
    """
    current = _existing(current)
    if current.closed:
        raise LedgerAlreadyClosed(current)
    if current.state is not LedgerState.IN_RECOVERY or current.last_fragment != begun_with:
        raise FragmentChanged("the ledger's last fragment changed during its recovery")
    fragments = current.fragments
    for fragment in own_fragments:
        fragments = _with_last_fragment(fragments, fragment)
    written_to = [bookie for fragment in own_fragments for bookie in (*begun_with.bookies, *fragment.bookies)]
    former = _with_former(current, written_to, fragments[-1].bookies)
    return _closed(replace(current, fragments=fragments, former_bookies=former), last, length, now_ms)


def replace_bookie(
    current: LedgerMetadata | None, first_entry_id: int, slot: int, old: str, new: str
) -> LedgerMetadata:
    """Repair's: another bookie holds what `old` held of one fragment. Not of a last fragment that still grows."""
    current = _existing(current)
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
    return replace(current, fragments=fragments, former_bookies=_with_former(current, (old,), ()))


def add_holders(current: LedgerMetadata | None, *bookies: str) -> LedgerMetadata:
    """Bookies that hold entries, or are about to, though nothing names them: a tombstone waits for them as well."""
    current = _existing(current)
    named = (*current.former_bookies, *current.bookies())
    new = [bookie for bookie in dict.fromkeys(bookies) if bookie not in named]
    return replace(current, former_bookies=(*current.former_bookies, *new)) if new else current


def add_recovery_holders(current: LedgerMetadata | None, bookies: Iterable[str]) -> LedgerMetadata:
    """Before a recovery writes to bookies of its own choice. Raises `LedgerAlreadyClosed` where it comes too late."""
    if current is not None and current.closed:
        raise LedgerAlreadyClosed(current)
    return add_holders(current, *bookies)


def tombstone(current: LedgerMetadata | None) -> LedgerMetadata:
    """Deleted: whoever may hold entries is to drop them."""
    if current is None:
        raise NoSuchLedger("the ledger does not exist")
    if current.state is LedgerState.TOMBSTONE:
        return current
    holders = tuple(dict.fromkeys((*current.bookies(), *current.former_bookies)))
    return replace(current, state=LedgerState.TOMBSTONE, holders=holders)


def remove_holders(current: LedgerMetadata, bookies: Iterable[str]) -> LedgerMetadata:
    """Of a tombstone: these have dropped the ledger, or do not exist any more."""
    gone = set(bookies)
    return replace(current, holders=tuple(bookie for bookie in current.holders if bookie not in gone))


def _existing(current: LedgerMetadata | None) -> LedgerMetadata:
    if current is None:
        raise NoSuchLedger("the ledger does not exist")
    if current.state is LedgerState.TOMBSTONE:
        raise LedgerDeleted("the ledger was deleted")
    return current


def _to_be_written(current: LedgerMetadata | None) -> LedgerMetadata:
    """Only as long as it is OPEN is it the writer's. A writer whose ledger is gone has lost it as well."""
    if current is None or current.state is not LedgerState.OPEN:
        state = "deleted" if current is None else current.state.name
        raise LedgerFenced(f"the ledger is {state}, not OPEN: another client has taken it over")
    return current


def _closed(current: LedgerMetadata, last: int, length: int, now_ms: int) -> LedgerMetadata:
    fragments = tuple(fragment for fragment in current.fragments if fragment.first_entry_id <= last)
    kept = {bookie for fragment in fragments for bookie in fragment.bookies}
    left = [bookie for bookie in current.bookies() if bookie not in kept]
    return replace(
        current,
        state=LedgerState.CLOSED,
        fragments=fragments,
        last_entry_id=last,
        length_bytes=length,
        closed_ms=now_ms,
        former_bookies=_with_former(current, left, ()),
    )


def _with_last_fragment(fragments: tuple[Fragment, ...], fragment: Fragment) -> tuple[Fragment, ...]:
    """Appended, or in place of a last one that begins at the same entry: that one holds nothing confirmed."""
    if fragment.first_entry_id < fragments[-1].first_entry_id:
        raise FragmentChanged(f"a fragment from {fragment.first_entry_id} lies before the last one's first entry")
    kept = fragments[:-1] if fragments[-1].first_entry_id == fragment.first_entry_id else fragments
    return (*kept, fragment)


def _with_former(current: LedgerMetadata, old: Iterable[str], new: Iterable[str]) -> tuple[str, ...]:
    """Former bookies and those of `old` that `new` lacks. One that a fragment names may stand here as well."""
    kept = set(new)
    return tuple(dict.fromkeys((*current.former_bookies, *(bookie for bookie in old if bookie not in kept))))
