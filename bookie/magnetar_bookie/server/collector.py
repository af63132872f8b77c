"""Garbage: the bookie drops ledgers that were deleted, and makes itself known for those that forgot it.

A tombstone is the one thing that has it drop entries. That the metadata store has no such ledger has it drop nothing:
a store that was restored from yesterday, or the wrong one, has none of today's ledgers either. Such ledgers are counted
and reported.

The ledgers are listed before the sync, so whatever is on the list was made before, and its node can be seen. They are
listed in portions, and those that are settled are passed over: a bookie keeps its tombstones for ever, so there are
many more of them in the end than of anything else. Where one was settled too soon (the store had lost its node, and has
it again) the auditor's fence has it looked at anew.
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
# So many ledgers are listed at a time.
_PORTION: Final = 1000


class GarbageCollector:
    """One bookie's, as long as its process lives."""

    def __init__(self, bookie: Bookie, clock: Clock, randomness: Randomness) -> None:
        self._bookie = bookie
        self._clock = clock
        self._randomness = randomness
        # Ledgers that are here and that the metadata store does not know, as of the last round.
        self.unexplained: dict[int, None] = {}
        # How many there are that were deleted, as of the last round.
        self.tombstones = 0
        # How many there were that were not, when a round ended, and what the bookie had gained by then.
        self._counted: tuple[int, int] | None = None

    @property
    def ledgers(self) -> int | None:
        """How many there are that were not deleted; None: there was no round yet.

        As the last round counted them, with those made and deleted since: one that was made while the round went on is
        missing until the next.
        """
        if self._counted is None:
            return None
        held, gained = self._counted
        return held + self._bookie.ledgers_gained - gained

    async def run(self, ledgers: LedgerMetadataStore) -> None:
        """Until it is cancelled or the session lost (`SessionLost`)."""
        while True:
            try:
                await self.collect(ledgers)
            except SessionLost:
                raise
            except MetadataError as error:
                _log.info("The search for deleted ledgers stopped, and continues in the next round: %s", error)
            await self._clock.sleep(self._bookie.settings.garbage_interval_seconds)

    async def collect(self, ledgers: LedgerMetadataStore) -> None:
        """One round. Raises `MetadataError` where the store gave no answer: what was done so far is done."""
        unexplained: dict[int, None] = {}
        first = held = deleted = 0
        while portion := self._bookie.storage.ledger_ids(first, _PORTION):
            if first:
                await self._clock.sleep(0)  # others are to have their turn
            await self._look_through([one for one in portion if not self._settled(one)], ledgers, unexplained)
            tombstones = sum(map(self._bookie.is_tombstone, portion))
            deleted += tombstones
            held += len(portion) - tombstones
            first = portion[-1] + 1
        self._counted, self.tombstones = (held, self._bookie.ledgers_gained), deleted
        self._report(unexplained)

    def _settled(self, ledger_id: int) -> bool:
        record = self._bookie.storage.ledger(ledger_id)
        return record is not None and record.settled

    async def _look_through(
        self, held: Sequence[int], ledgers: LedgerMetadataStore, unexplained: dict[int, None]
    ) -> None:
        if held:
            await ledgers.store.sync()
        for ledger_id in held:
            try:
                metadata = await ledgers.read_metadata(ledger_id)
            except NoSuchLedger:
                if self._bookie.is_deleted(ledger_id):
                    self._bookie.settle(ledger_id)
                else:
                    unexplained[ledger_id] = None
                continue
            except (LedgerError, ForeignValue) as error:
                ledgers.undecodable_nodes.log_once(paths.ledger(ledger_id), error)
                continue
            await self._look_at(ledgers, ledger_id, metadata)

    async def _look_at(self, ledgers: LedgerMetadataStore, ledger_id: int, metadata: LedgerMetadata) -> None:
        bookie = self._bookie
        if metadata.state is LedgerState.TOMBSTONE:
            # Always: what a round that was broken off has put in line may not be on the disk yet.
            await bookie.tombstone(ledger_id)
            if bookie.bookie_id in metadata.holders or not metadata.holders:
                await ledgers.remove_tombstone_holders(ledger_id, [bookie.bookie_id])
            bookie.settle(ledger_id)
        elif bookie.bookie_id not in metadata.bookies() and bookie.bookie_id not in metadata.former_bookies:
            try:
                await ledgers.change_metadata(ledger_id, lambda current: add_holders(current, bookie.bookie_id))
            except LedgerError as error:
                _log.info("Ledger %d is checked again in the next round: %s", ledger_id, error)

    def _report(self, unexplained: dict[int, None]) -> None:
        new = [ledger_id for ledger_id in unexplained if ledger_id not in self.unexplained]
        if new:
            _log.warning(
                "%d ledgers on this bookie are unknown to the metadata store, such as ledger %d: they are retained",
                len(unexplained),
                new[0],
            )
        self.unexplained = unexplained
