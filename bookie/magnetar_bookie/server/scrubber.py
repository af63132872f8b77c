"""The scrubber: it reads all stored entries regularly, and reports damaged ones for repair.

An entry may not be read for years while its replicas are damaged one by one, so damage has to be found while other
replicas are valid. A ledger with a damaged record gets a repair task, once in a pass. The replication worker requests
the bookie's inventory, which lacks the damaged record, and copies the record from another replica. The copy replaces
the damaged one.

Damage that repair would not fix gets no task (`LedgerMetadata.list_final_entries`): the task would end at once, and
each pass would create another. To decide that, the ledger's metadata is read after the damage was found, and after a
sync. Entries above the end of a closed ledger, or in a fragment that names another bookie by now, are not needed.
Entries in the last fragment of a ledger that is not closed are repaired after the close, when the auditor requests the
inventories.

The scrubber needs a metadata session for its reports. In the next session it continues where it was.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from magnetar_bookie import paths
from magnetar_bookie.auto_recovery.underreplicated_ledgers import UnderreplicatedLedgers
from magnetar_bookie.errors import LedgerError, NoSuchLedger
from magnetar_bookie.ledger.ledger_client import LedgerClient
from magnetar_bookie.server.bookie import Bookie
from magnetar_bookie.server.ledger_rules import MAX_ENTRY_ID
from magnetar_bookie.server.scrubber_rules import move_position, seconds_to_pause, seconds_until_due, start_pass
from magnetar_bookie.storage.interface import Damaged
from magnetar_metadata.errors import ForeignValue, Refused, Unavailable
from magnetar_protos.ledger_pb2 import BookieRecord, ScrubPosition
from magnetar_wire.clock import Clock

__all__ = ["Scrubber"]

_log = logging.getLogger(__name__)
# Bounds of one request to the storage.
_MAX_LEDGERS: Final = 100
_MAX_RECORDS: Final = 500
_MAX_READ_BYTES: Final = 1_048_576
# How often the position is stored. After a crash, the entries read since are read again.
_STORE_INTERVAL_S: Final = 60.0
# Maximum number of ledgers that are remembered as reported in this pass. Others may be reported more than once.
_MAX_REPORTED: Final = 10_000


class Scrubber:
    """The scrubber of one bookie. It exists for as long as the bookie's process."""

    def __init__(self, bookie: Bookie, clock: Clock) -> None:
        self._bookie = bookie
        self._clock = clock
        # All entries before were read in this pass, and damaged ones reported.
        self.position = ScrubPosition()
        self.position.CopyFrom(bookie.record.scrub)
        self._stored_at = clock.monotonic()
        # Ledgers that were reported in this pass.
        self._reported: dict[int, None] = {}

    async def run(self, client: LedgerClient) -> None:
        """Do one pass after the other, until cancelled. Raises `SessionLost`."""
        interval_s = self._bookie.settings.scrub_interval_seconds
        while interval_s:
            await self._clock.sleep(seconds_until_due(self.position, self._clock.time_ms(), interval_s))
            await self._do_pass(client)

    async def _do_pass(self, client: LedgerClient) -> None:
        self.position = start_pass(self.position, self._clock.time_ms())
        while ledger_ids := self._bookie.storage.list_ledger_ids(self.position.ledger_id, _MAX_LEDGERS):
            started = self._clock.monotonic()
            for ledger_id in ledger_ids:
                first = self.position.entry_id if ledger_id == self.position.ledger_id else 0
                await self._scrub_ledger(ledger_id, first, client)
            self._set_position(ledger_ids[-1] + 1)
            await self._throttle(started, ledgers=len(ledger_ids))
        self._reported.clear()
        self._set_position(self.position.ledger_id, done=True)
        self._bookie.counters.scrub_passes += 1
        await self._store_position()
        took_s = (self._clock.time_ms() - self.position.began_ms) / 1000
        if took_s > self._bookie.settings.scrub_interval_seconds:
            _log.warning(
                "A pass over all entries took %.0f s, longer than scrub_interval_seconds of %s s: raise "
                "scrub_max_bytes_per_second",
                took_s,
                self._bookie.settings.scrub_interval_seconds,
            )

    async def _scrub_ledger(self, ledger_id: int, first: int, client: LedgerClient) -> None:
        bookie = self._bookie
        while entry_ids := bookie.storage.list_entry_ids(ledger_id, first, MAX_ENTRY_ID, _MAX_RECORDS):
            started = self._clock.monotonic()
            records = await bookie.reader.read(ledger_id, entry_ids, _MAX_READ_BYTES)
            damaged = [entry_id for entry_id, one in zip(entry_ids, records, strict=False) if isinstance(one, Damaged)]
            if damaged:
                await self._report_damage(ledger_id, damaged, client)
            size_bytes = sum(len(one) for one in records if isinstance(one, bytes))
            bookie.counters.scrubbed_records += len(records)
            bookie.counters.scrubbed_bytes += size_bytes
            first = entry_ids[len(records) - 1] + 1
            self._set_position(ledger_id, first)
            await self._throttle(started, size_bytes, len(records))

    async def _report_damage(self, ledger_id: int, damaged: Sequence[int], client: LedgerClient) -> None:
        """Write a repair task if repair would fix any of the damage. Retries until the metadata store answers."""
        if ledger_id in self._reported or self._bookie.is_deleted(ledger_id):
            return
        while True:
            try:
                repairable = await self._find_repairable(ledger_id, damaged, client)
                if not repairable:
                    return
                await UnderreplicatedLedgers(client).mark_underreplicated(ledger_id)
                break
            except (Refused, Unavailable) as error:
                _log.info("The damage of ledger %d can't be reported yet: %s", ledger_id, error)
            await self._clock.sleep(self._bookie.settings.metadata_retry_seconds)
        _log.warning("%d entries of ledger %d are damaged; the first is %d", len(repairable), ledger_id, repairable[0])
        if len(self._reported) < _MAX_REPORTED:
            self._reported[ledger_id] = None

    async def _find_repairable(self, ledger_id: int, damaged: Sequence[int], client: LedgerClient) -> list[int]:
        try:
            metadata = await client.ledgers.read_metadata(ledger_id, fresh=True)
        except NoSuchLedger:
            return []
        except (ForeignValue, LedgerError) as error:
            client.ledgers.undecodable_nodes.log_once(paths.ledger(ledger_id), error)
            return []
        return metadata.list_final_entries(self._bookie.bookie_id, damaged)

    def _set_position(self, ledger_id: int, entry_id: int = 0, *, done: bool = False) -> None:
        self.position = move_position(self.position, ledger_id, entry_id, done=done)

    async def _throttle(self, started: float, size_bytes: int = 0, records: int = 0, ledgers: int = 0) -> None:
        """Pause to respect the speed limit, and store the position if that is due."""
        took_s = self._clock.monotonic() - started
        rate = self._bookie.settings.scrub_max_bytes_per_second
        await self._clock.sleep(seconds_to_pause(size_bytes, records, ledgers, took_s, rate))
        if self._clock.monotonic() >= self._stored_at + _STORE_INTERVAL_S:
            await self._store_position()

    async def _store_position(self) -> None:
        self._stored_at = self._clock.monotonic()
        record = BookieRecord()
        record.CopyFrom(self._bookie.record)
        record.scrub.CopyFrom(self.position)
        await self._bookie.store_record(record)
