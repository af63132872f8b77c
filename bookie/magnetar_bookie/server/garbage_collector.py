"""Garbage collection: the bookie drops ledgers that were deleted.

Only a tombstone in the metadata store makes a bookie drop a ledger. A ledger without a node is retained, counted and
reported: if the store was restored from a backup, or is the wrong one, it has no node of recent ledgers either. A
bookie that stores a ledger whose metadata doesn't name it adds itself to the ledger's former bookies, so that a later
tombstone waits for it.

The ledgers are listed before the sync of the metadata store, so each listed ledger was created before, and its node is
visible. Settled tombstones are skipped: a bookie retains its tombstones for ever, so in the end there are far more of
them than of anything else. If one was settled too early (the store had lost the node, and has it again), the auditor
sends a fence, and the ledger is checked again.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from magnetar_bookie import paths
from magnetar_bookie.errors import LedgerError, NoSuchLedger
from magnetar_bookie.ledger.ledger_metadata import LedgerMetadata, LedgerState, add_holders
from magnetar_bookie.ledger.ledger_metadata_store import LedgerMetadataStore
from magnetar_bookie.server.bookie import Bookie
from magnetar_metadata.errors import ForeignValue, MetadataError, SessionLost
from magnetar_wire.clock import Clock
from magnetar_wire.randomness import Randomness

__all__ = ["GarbageCollector"]

_log = logging.getLogger(__name__)
# Maximum number of ledgers in one request to the storage.
_MAX_LEDGERS: Final = 1000


class GarbageCollector:
    """The collector of one bookie. It exists for as long as the bookie's process."""

    def __init__(self, bookie: Bookie, clock: Clock, randomness: Randomness) -> None:
        self._bookie = bookie
        self._clock = clock
        self._randomness = randomness
        # Stored ledgers that the metadata store does not know, as of the last round.
        self.unexplained: dict[int, None] = {}
        # The number of stored tombstones, as of the last round.
        self.tombstones = 0
        # At the end of the last round: the number of stored ledgers, and the bookie's `ledger_count_change`.
        self._counted: tuple[int, int] | None = None

    @property
    def ledgers(self) -> int | None:
        """The number of stored ledgers, without tombstones; None: there was no round yet.

        It is the number of the last round, with the ledgers created and deleted since. A ledger that was created during
        the round is missing until the next one.
        """
        if self._counted is None:
            return None
        ledgers, change = self._counted
        return ledgers + self._bookie.ledger_count_change - change

    async def run(self, ledgers: LedgerMetadataStore) -> None:
        """Collect in rounds, until cancelled. Raises `SessionLost`."""
        while True:
            try:
                await self.collect(ledgers)
            except SessionLost:
                raise
            except MetadataError as error:
                _log.info("The search for deleted ledgers stopped, and continues in the next round: %s", error)
            await self._clock.sleep(self._bookie.settings.garbage_interval_seconds)

    async def collect(self, ledgers: LedgerMetadataStore) -> None:
        """Do one round. It stops with a `MetadataError` if the metadata store does not answer."""
        unexplained: dict[int, None] = {}
        first = ledger_count = tombstones = 0
        while ledger_ids := self._bookie.storage.list_ledger_ids(first, _MAX_LEDGERS):
            if first:
                await self._clock.sleep(0)  # let other tasks run
            await self._check_ledgers([one for one in ledger_ids if not self._is_settled(one)], ledgers, unexplained)
            listed_tombstones = sum(map(self._bookie.has_tombstone, ledger_ids))
            tombstones += listed_tombstones
            ledger_count += len(ledger_ids) - listed_tombstones
            first = ledger_ids[-1] + 1
        self._counted, self.tombstones = (ledger_count, self._bookie.ledger_count_change), tombstones
        self._report_unexplained(unexplained)

    def _is_settled(self, ledger_id: int) -> bool:
        ledger = self._bookie.storage.get_ledger(ledger_id)
        return ledger is not None and ledger.settled

    async def _check_ledgers(
        self, ledger_ids: Sequence[int], ledgers: LedgerMetadataStore, unexplained: dict[int, None]
    ) -> None:
        if ledger_ids:
            await ledgers.store.sync()
        for ledger_id in ledger_ids:
            try:
                metadata = await ledgers.read_metadata(ledger_id)
            except NoSuchLedger:
                if self._bookie.is_deleted(ledger_id):
                    self._bookie.settle_tombstone(ledger_id)
                else:
                    unexplained[ledger_id] = None
                continue
            except (LedgerError, ForeignValue) as error:
                ledgers.undecodable_nodes.log_once(paths.ledger(ledger_id), error)
                continue
            await self._check_ledger(ledgers, ledger_id, metadata)

    async def _check_ledger(self, ledgers: LedgerMetadataStore, ledger_id: int, metadata: LedgerMetadata) -> None:
        bookie = self._bookie
        if metadata.state is LedgerState.TOMBSTONE:
            # Also if it is deleted already: if a round was interrupted, the deletion may not be durable yet.
            await bookie.delete_ledger(ledger_id)
            if bookie.bookie_id in metadata.holders or not metadata.holders:
                await ledgers.remove_tombstone_holders(ledger_id, [bookie.bookie_id])
            bookie.settle_tombstone(ledger_id)
        elif bookie.bookie_id not in metadata.bookies() and bookie.bookie_id not in metadata.former_bookies:
            try:
                await ledgers.change_metadata(ledger_id, lambda current: add_holders(current, bookie.bookie_id))
            except LedgerError as error:
                _log.info("Ledger %d is checked again in the next round: %s", ledger_id, error)

    def _report_unexplained(self, unexplained: dict[int, None]) -> None:
        new = [ledger_id for ledger_id in unexplained if ledger_id not in self.unexplained]
        if new:
            _log.warning(
                "%d ledgers on this bookie are unknown to the metadata store, such as ledger %d: they are retained",
                len(unexplained),
                new[0],
            )
        self.unexplained = unexplained
