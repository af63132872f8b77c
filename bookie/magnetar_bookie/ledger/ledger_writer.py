"""Writes a ledger, from its first entry to its close.

The adds themselves are in `replicated_adds.py`, whose `append_entries` is the writer's: it assigns the entry ids, and
reports when entries are on the disks of an ack quorum. After the first failed add all later ones fail, and only `close`
is left.

Capacity is limited. `wait_for_capacity` waits for it. `on_capacity` is called when the last bookie that the ledger
needs has caught up. `add` waits for capacity and for the completion. If its caller is cancelled, the add continues.

`close` waits until nothing is pending and closes the ledger at its LAC. After it has returned, no failed add will ever
be read. If it raises `CloseLost`, another client has closed the ledger or will close it. After `OutcomeNotKnown`, an
error of the metadata store or a cancellation, call it again. If the ledger client is closed first, the ledger is left
to a recovery.

While nothing is added, `explicit_lac.py` sends the LAC to the bookies.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

from magnetar_bookie.errors import AddFailed, CloseLost, LedgerFenced, OutcomeNotKnown
from magnetar_bookie.ledger import ledger_metadata
from magnetar_bookie.ledger.context import LedgerContext
from magnetar_bookie.ledger.ensemble_rules import EnsembleChange
from magnetar_bookie.ledger.explicit_lac import ExplicitLac
from magnetar_bookie.ledger.ledger_metadata import LedgerMetadata
from magnetar_bookie.ledger.ledger_metadata_store import LedgerNodeCache, NewLedger
from magnetar_bookie.ledger.replicated_adds import AppendCallback, ReplicatedAdds

__all__ = ["AppendCallback", "LedgerWriter"]

# A fragment takes some 100 bytes of the ledger's metadata, which may have a million.
_MAX_FRAGMENTS: Final = 200


class LedgerWriter:
    """The only writer of one ledger. Created by `LedgerClient.create`."""

    __slots__ = (
        "_adds",
        "_client",
        "_close_result",
        "_is_abandoned",
        "_lac",
        "_node",
        "_on_closed",
        "_waiting",
        "append_entries",
        "count_capacity",
        "ledger_id",
        "metadata",
        "on_capacity",
    )

    def __init__(
        self,
        client: LedgerContext,
        new_ledger: NewLedger,
        on_closed: Callable[[], object] = lambda: None,
        *,
        explicit_lac: bool = True,
    ) -> None:
        self.ledger_id = new_ledger.ledger_id
        # As this writer read or changed them last.
        self.metadata = metadata = new_ledger.metadata
        self._node = LedgerNodeCache(new_ledger.stored)
        self._client = client
        self._on_closed = on_closed
        self._adds = ReplicatedAdds(
            client,
            self.ledger_id,
            metadata,
            metadata.last_fragment,
            0,
            self._publish,
            recovery=False,
            on_decided=self._after_decisions,
            on_unblocked=self._after_unblocking,
        )
        # Add entries, and how many of them: without a call in between, since every entry is added so.
        self.append_entries = self._adds.append_entries
        self.count_capacity = self._adds.count_capacity
        lac_interval_s = client.settings.explicit_lac_interval_ms / 1000 if explicit_lac else 0.0
        self._lac = ExplicitLac(client, self.ledger_id, metadata.master_key, self._adds, lac_interval_s)
        self._is_abandoned = False
        # The outcome of the close in flight, or of the one that was decided.
        self._close_result: asyncio.Future[LedgerMetadata] | None = None
        # Callers of `wait_for_capacity`, in order.
        self._waiting: list[asyncio.Future[None]] = []
        # Called when there is capacity again for another reason than completed adds.
        self.on_capacity: Callable[[], object] | None = None

    @property
    def last_add_confirmed(self) -> int:
        return self._adds.rules.last_add_confirmed

    @property
    def length_bytes(self) -> int:
        """The size of the completed entries."""
        return self._adds.length_bytes

    @property
    def pending_entries(self) -> int:
        return self._adds.pending_entries

    @property
    def pending_bytes(self) -> int:
        """The memory of the pending records."""
        return self._adds.pending_bytes

    @property
    def failure(self) -> AddFailed | None:
        """The error of the first failed add, with which all later ones fail."""
        return self._adds.rules.failure

    @property
    def is_blocked(self) -> bool:
        """Whether the writer accepts nothing since it needs bookies that lag (`blocking_bookies`)."""
        return self._adds.is_blocked

    @property
    def blocking_bookies(self) -> list[str]:
        return self._adds.rules.blocking_bookies

    @property
    def absent_bookies(self) -> list[str]:
        """Bookies that failed, are sent nothing, and stay in the ensemble for want of a replacement."""
        rules = self._adds.rules
        return [rules.fragment.bookies[slot] for slot in rules.ensemble.absent_slots]

    @property
    def should_roll(self) -> bool:
        """Whether a new ledger would be better: the ensemble of this one is smaller than requested, and enough bookies
        are available now; or its ensemble changed so often that its metadata become large.
        """
        metadata = self.metadata
        if len(metadata.fragments) >= _MAX_FRAGMENTS:
            return True
        return metadata.is_degraded and len(self._client.bookies.writable()) >= metadata.wanted_ensemble_size

    # ── capacity ──

    def has_capacity(self) -> bool:
        """Return whether `append` accepts an entry, or would fail for another reason."""
        return self._adds.has_capacity()

    async def wait_for_capacity(self) -> None:
        """Wait until `append` accepts an entry, or would fail for another reason."""
        while not self.has_capacity():
            capacity: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(capacity)
            await capacity

    def _after_decisions(self) -> None:
        adds = self._adds
        if self._waiting and self.has_capacity():
            self._wake()
        if not adds.pending_entries and adds.rules.failure is None:
            self._lac.on_idle()

    def _after_unblocking(self) -> None:
        if self.has_capacity():
            self._wake()
            if self.on_capacity is not None:
                self.on_capacity()

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for capacity in waiting:
            if not capacity.done():
                capacity.set_result(None)

    # ── adding ──

    def append(self, entry: bytes, done: Callable[[int | AddFailed], object]) -> int:
        """Add one entry, as `append_entries` does."""
        return self.append_entries([entry], lambda result, _count: done(result))

    async def add(self, entry: bytes) -> int:
        """Add an entry, wait until it has completed, and return its id. Raises `AddFailed`, and `TooLarge` at once."""
        await self.wait_for_capacity()
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

    async def _publish(self, change: EnsembleChange) -> None:
        self.metadata = await self._client.ledgers.change_metadata(
            self.ledger_id,
            lambda current: ledger_metadata.replace_last_fragment(current, change.fragment),
            self._client.bookies.cookie_checks(change.new_bookies),
            self._node,
        )

    # ── closing ──

    async def close(self, properties: Callable[[], Mapping[str, bytes]] = dict) -> LedgerMetadata:
        """Close the ledger at its last completed entry, once nothing is pending. Return its metadata.

        `properties` is called then, and its result is added to the ledger's properties. Raises `CloseLost`,
        `OutcomeNotKnown` and errors of the metadata store: see the module's docstring.
        """
        self._adds.refuse_new_adds()
        self._wake()
        result = self._close_result
        if result is None:
            if self._is_abandoned:
                raise self._abandoned_error()
            result = self._close_result = asyncio.get_running_loop().create_future()
            closing = self._client.bookies.spawn(self._close(result, properties))
            closing.add_done_callback(lambda _: self._on_close_ended(result))
        return await asyncio.shield(result)

    async def _close(
        self, result: asyncio.Future[LedgerMetadata], properties: Callable[[], Mapping[str, bytes]]
    ) -> None:
        """Close the ledger, in a task of its own: a caller that is cancelled must not interrupt it."""
        try:
            await self._adds.wait_until_idle()
            if self._is_abandoned:
                raise self._abandoned_error()
            self._stop()
            result.set_result(await self._set_closed(properties()))
            self._on_closed()
        except Exception as error:  # noqa: BLE001 (the callers of `close` get it)
            if isinstance(error, CloseLost):
                self._on_closed()
            else:
                self._close_result = None  # undecided: `close` may be called again
            _set_error(result, error)

    def _on_close_ended(self, result: asyncio.Future[LedgerMetadata]) -> None:
        """Report to callers of `close` that the task was cancelled, since the ledger client was closed."""
        if not result.done():
            self._close_result = None
            _set_error(
                result,
                OutcomeNotKnown(
                    f"the ledger client was closed while it closed ledger {self.ledger_id}: unknown whether "
                    "that is closed; recover it"
                ),
            )

    async def _set_closed(self, properties: Mapping[str, bytes]) -> LedgerMetadata:
        last, length = self._adds.rules.last_add_confirmed, self.length_bytes
        has_failed_adds = self._adds.has_failed_adds

        def close(current: LedgerMetadata | None) -> LedgerMetadata:
            if not has_failed_adds and current is not None and current.is_closed and current.last_entry_id == last:
                return current  # closed with the same result
            return ledger_metadata.close_by_writer(current, last, length, self._client.clock.time_ms(), properties)

        try:
            self.metadata = await self._client.ledgers.change_metadata(self.ledger_id, close, known=self._node)
        except LedgerFenced as error:
            raise CloseLost(
                f"ledger {self.ledger_id} was closed by another client before its writer could close it at "
                f"entry {last}: entries whose add failed may be in it or not ({error})"
            ) from error
        return self.metadata

    def abandon(self) -> None:
        """Stop, and leave the ledger to a recovery."""
        self._is_abandoned = True
        self._stop()
        self._on_closed()

    def _abandoned_error(self) -> CloseLost:
        return CloseLost(f"ledger {self.ledger_id} was abandoned before it was closed: recover it")

    def _stop(self) -> None:
        self._lac.stop()
        self._adds.stop()
        self._wake()


def _set_error(result: asyncio.Future[LedgerMetadata], error: Exception) -> None:
    result.set_exception(error)
    result.exception()  # retrieved, in case that no caller waits any more
