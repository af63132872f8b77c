"""The one who writes a ledger, from its first entry to its close.

    ledger_id, errors first: after the first add that fails all later ones fail, and what is left is `close`

`append_entries` makes the records, once: with the LAC of this moment and the bytes of all entries so far. They are
taken as long as there is room: less than `max_pending_entries` and `max_pending_bytes` are pending, and no bookie lags
that the ledger needs. `room` waits for that, `on_capacity` is called when it comes about, and `add` waits for room and
for the completion too. A caller of `add` that is cancelled leaves the add with the ledger: it is decided like any
other.

`close` waits until nothing is pending and closes the ledger at its LAC. If it returns, no failed add will ever be read.
If it raises `CloseLost`, somebody else has closed the ledger or is about to. If it raises `OutcomeNotKnown` or an error
of the metadata store, or is cancelled, it may be called again. Where the client is closed meanwhile, the ledger is left
for a recovery to close.

When a writer falls silent, explicit_lac.py tells the bookies its LAC.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

from magnetar_bookie.errors import AddFailed, CloseLost, LedgerFenced, OutcomeNotKnown, TooManyPending, WriterClosed
from magnetar_bookie.ledger import ledger_metadata
from magnetar_bookie.ledger.context import LedgerContext
from magnetar_bookie.ledger.ensemble_rules import Change
from magnetar_bookie.ledger.explicit_lac import ExplicitLac
from magnetar_bookie.ledger.ledger_metadata import LedgerMetadata
from magnetar_bookie.ledger.ledger_metadata_store import LedgerNodeCache, NewLedger
from magnetar_bookie.ledger.replicated_adds import ReplicatedAdds
from magnetar_bookie.read.record import RECORD_HEADER_BYTES, encode_record
from magnetar_wire.errors import TooLarge
from magnetar_wire.limits import MAX_ENTRY_BYTES

__all__ = ["AppendCallback", "LedgerWriter"]

# Called with the id of the first of so many entries, or with what they failed with.
AppendCallback = Callable[[int | AddFailed, int], object]

# Each has some 100 bytes in the metadata, which hold a million.
_MANY_FRAGMENTS: Final = 200


class LedgerWriter:
    """`LedgerClient.create` makes it."""

    def __init__(
        self,
        client: LedgerContext,
        made: NewLedger,
        ended: Callable[[], object] = lambda: None,
        *,
        explicit_lac: bool = True,
    ) -> None:
        self.ledger_id = made.ledger_id
        # As this writer last saw or made it.
        self.metadata = made.metadata
        self._node = LedgerNodeCache(made.stored)
        self._client = client
        self._ended = ended
        settings = client.settings
        self._max_entries, self._max_bytes = settings.max_pending_entries, settings.max_pending_bytes
        self._adds = ReplicatedAdds(
            made.ledger_id,
            made.metadata.master_key,
            made.metadata.striping,
            made.metadata.last_fragment,
            0,
            client.bookies,
            client.placement,
            self._publish,
            client.clock,
            client.randomness,
            settings,
            recovery=False,
            told=self._after_completions,
            released=self._released,
        )
        lac_interval_s = settings.explicit_lac_interval_ms / 1000 if explicit_lac else 0.0
        self._lac = ExplicitLac(client, made.ledger_id, made.metadata.master_key, self._adds, lac_interval_s)
        self._next_entry_id = 0
        # Of all entries that were appended, and of those that have completed.
        self._appended_bytes = 0
        self.length_bytes = 0
        self._add_failed = False
        self._closing = False
        self._abandoned = False
        # What the close under way comes to; and of one that has decided, for good.
        self._close_result: asyncio.Future[LedgerMetadata] | None = None
        # Those that wait for room, first come first served.
        self._waiting: list[asyncio.Future[None]] = []
        # Called when there is room that no completion has made: the last bookie that the writer waited for caught up.
        self.on_capacity: Callable[[], object] | None = None

    @property
    def last_add_confirmed(self) -> int:
        return self._adds.last_add_confirmed

    @property
    def pending_entries(self) -> int:
        return self._adds.pending_entries

    @property
    def pending_bytes(self) -> int:
        """The memory of the records that are pending."""
        return self._adds.pending_bytes

    @property
    def failed(self) -> AddFailed | None:
        """What the first add that failed failed with; so will every later one."""
        return self._adds.failed

    @property
    def held_up(self) -> bool:
        """Nothing is taken until bookies that lag have caught up, since the ledger needs them."""
        return self._adds.held_up

    @property
    def held_up_by(self) -> list[str]:
        """These bookies."""
        return self._adds.held_up_by

    @property
    def absent(self) -> list[str]:
        """Bookies that failed and are listed still, as nobody could take their place: they are sent nothing."""
        return [self._adds.fragment.bookies[slot] for slot in self._adds.absent]

    @property
    def should_roll(self) -> bool:
        """Another ledger would do better: this one has fewer bookies than were asked for, and by now as many could be
        had; or its bookies have come and gone so often that its metadata grow large.
        """
        metadata = self.metadata
        if len(metadata.fragments) >= _MANY_FRAGMENTS:
            return True
        return metadata.degraded and len(self._client.bookies.writable()) >= metadata.wanted_ensemble_size

    def append(self, entry: bytes, done: Callable[[int | AddFailed], object]) -> int:
        """As `append_entries`, for one."""
        return self.append_entries([entry], lambda result, _count: done(result))

    def append_entries(self, entries: Sequence[bytes], done: AppendCallback) -> int:
        """Adds the entries and returns the id of the first. `done` is called later, in order, maybe for some at a time.

        As many as there is room for, by `free_entries` and `free_bytes`; one of any size where there is any. Raises
        `TooManyPending` when there is none and `TooLarge` for more than `MAX_ENTRY_BYTES`, and takes nothing.
        """
        largest = max(map(len, entries))
        if largest > MAX_ENTRY_BYTES:
            raise TooLarge(f"the entry has {largest} bytes, above the limit of {MAX_ENTRY_BYTES}")
        adds = self._adds
        if not self.has_room():
            raise TooManyPending(
                f"ledger {self.ledger_id} has {adds.pending_entries} pending adds of {adds.pending_bytes} "
                f"bytes, and may have {self._max_entries} of {self._max_bytes} bytes"
                + (f"; it needs {', '.join(adds.held_up_by)}, which lag behind" if adds.held_up else "")
                + ": wait until some are completed"
            )
        first, confirmed = self._next_entry_id, adds.last_add_confirmed
        ledger_id, length, records = self.ledger_id, self._appended_bytes, []
        for entry_id, entry in enumerate(entries, first):
            length += len(entry)
            records.append(encode_record(ledger_id, entry_id, confirmed, length, entry))
        self._next_entry_id = first + len(entries)
        self._appended_bytes = length
        self._lac.told(confirmed)
        adds.add(first, records, partial(self._decided, done))
        return first

    def _decided(self, done: AppendCallback, first: int, records: Sequence[bytes], error: AddFailed | None) -> None:
        if error is None:
            self.length_bytes += sum(map(len, records)) - RECORD_HEADER_BYTES * len(records)
            done(first, len(records))
            return
        if not isinstance(error, WriterClosed):
            self._add_failed = True
        done(error, len(records))

    async def room(self) -> None:
        """Returns when `append` finds room, or will fail anyway."""
        while not self.has_room():
            room: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(room)
            await room

    async def add(self, entry: bytes) -> int:
        """Adds the entry and returns its id when it has completed. Raises `AddFailed`, and `TooLarge` at once."""
        await self.room()
        added: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        def done(result: int | AddFailed) -> None:
            if added.done():  # the caller was cancelled
                return
            if isinstance(result, AddFailed):
                added.set_exception(result)
            else:
                added.set_result(result)

        self.append(entry, done)
        return await added

    async def close(self, properties: Callable[[], Mapping[str, bytes]] = dict) -> LedgerMetadata:
        """Closes the ledger at its last completed entry, once nothing is pending. `properties` is called then, and the
        ledger's metadata get what it returns.

        Raises `CloseLost` and `OutcomeNotKnown`, as the head of this file says, and errors of the metadata store.
        """
        self._closing = True
        self._adds.end()
        self._wake()
        result = self._close_result
        if result is None:
            if self._abandoned:
                raise CloseLost(self._given_up())
            result = self._close_result = asyncio.get_running_loop().create_future()
            closing = self._client.bookies.spawn(self._close(result, properties))
            closing.add_done_callback(lambda _: self._close_ended(result))
        return await asyncio.shield(result)

    async def _close(
        self, result: asyncio.Future[LedgerMetadata], properties: Callable[[], Mapping[str, bytes]]
    ) -> None:
        """In a task of its own: a caller that is cancelled does not leave the close half made."""
        try:
            await self._adds.wait_until_idle()
            if self._abandoned:
                raise CloseLost(self._given_up())
            self._stop()
            result.set_result(await self._set_closed(properties()))
            self._ended()
        except Exception as error:  # noqa: BLE001 (whoever waits for the close is told)
            if isinstance(error, CloseLost):
                self._ended()
            else:
                self._close_result = None  # undecided: it may be tried again
            self._close_failed(result, error)

    def _close_ended(self, result: asyncio.Future[LedgerMetadata]) -> None:
        """The client's tasks are cancelled when it is closed. Whoever waits for the close was not."""
        if not result.done():
            self._close_result = None
            self._close_failed(
                result,
                OutcomeNotKnown(
                    f"the ledger client was closed while it closed ledger {self.ledger_id}: unknown whether "
                    "that is closed; recover it"
                ),
            )

    @staticmethod
    def _close_failed(result: asyncio.Future[LedgerMetadata], error: Exception) -> None:
        result.set_exception(error)
        result.exception()  # seen, should nobody be waiting any more

    async def _set_closed(self, properties: Mapping[str, bytes]) -> LedgerMetadata:
        last, length = self._adds.last_add_confirmed, self.length_bytes
        clean = not self._add_failed

        def closed(current: LedgerMetadata | None) -> LedgerMetadata:
            if clean and current is not None and current.closed and current.last_entry_id == last:
                return current  # as it would be by our own hand
            return ledger_metadata.close_by_writer(current, last, length, self._client.clock.time_ms(), properties)

        try:
            self.metadata = await self._client.ledgers.change_metadata(self.ledger_id, closed, known=self._node)
        except LedgerFenced as error:
            raise CloseLost(
                f"ledger {self.ledger_id} was closed by another client before its writer could close it at "
                f"entry {last}: entries whose add failed may be in it or not ({error})"
            ) from error
        return self.metadata

    def abandon(self) -> None:
        """Stops. The ledger stays as it is, for a recovery to close."""
        self._closing = self._abandoned = True
        self._stop()
        self._ended()

    def _given_up(self) -> str:
        return f"ledger {self.ledger_id} was abandoned before it was closed: recover it"

    def _stop(self) -> None:
        self._lac.stop()
        self._adds.stop()
        self._wake()

    @property
    def free_entries(self) -> int:
        """How many more `append_entries` takes."""
        return self._max_entries - self._adds.pending_entries

    @property
    def free_bytes(self) -> int:
        """How much more memory, by `count_entry_memory` of the records; the entry that passes this is still taken."""
        return self._max_bytes - self._adds.pending_bytes

    def has_room(self) -> bool:
        """Whether `append` takes an entry now, or it will fail anyway."""
        adds = self._adds
        if self._closing:
            return True
        return not adds.held_up and adds.pending_entries < self._max_entries and adds.pending_bytes < self._max_bytes

    def _after_completions(self) -> None:
        if self._waiting and self.has_room():
            self._wake()
        if not self._adds.pending_entries and self._adds.failed is None:
            self._lac.idle()

    def _released(self) -> None:
        if self.has_room():
            self._wake()
            if self.on_capacity is not None:
                self.on_capacity()

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for room in waiting:
            if not room.done():
                room.set_result(None)

    async def _publish(self, change: Change) -> None:
        self.metadata = await self._client.ledgers.change_metadata(
            self.ledger_id,
            lambda current: ledger_metadata.replace_last_fragment(current, change.fragment),
            self._client.bookies.cookie_checks(change.named),
            self._node,
        )
