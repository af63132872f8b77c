"""The scrubber: it looks through all that the bookie holds for what has rotted, by the rules of core/scrub.py.

Nobody may read an entry for years, and all that while its copies rot one by one; so damage has to be looked for while
others are whole still. A ledger with a damaged record gets a repair task, once in a pass: a worker asks for the
bookie's inventory, in which the record is missing, and copies it from another replica, and the bookie takes that for
the damaged one.

Damage that no repair would mend gets no task (`repairable_entries` of auto_recovery/ledger_repair_rules.py), or each
pass would write a task that ends at once. The ledger's metadata is read for that after the damage was found, and after
a sync. Entries above the end of a closed ledger, or of a fragment that names another bookie by now, are needed by
nobody. Entries in the last fragment of a ledger that is not closed are repaired after the close: the auditor asks for
the inventories then.

It goes on with each metadata session where it was, since it needs one to report what it finds.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from magnetar_bookie import paths
from magnetar_bookie.auto_recovery.ledger_repair_rules import repairable_entries
from magnetar_bookie.auto_recovery.underreplicated_ledgers import UnderreplicatedLedgers
from magnetar_bookie.client.ledger_client import LedgerClient
from magnetar_bookie.core import scrub
from magnetar_bookie.core.ledger_replicas import MAX_ENTRY_ID
from magnetar_bookie.errors import LedgerError, NoSuchLedger
from magnetar_bookie.server.bookie import Bookie
from magnetar_bookie.storage.interface import Damaged
from magnetar_metadata.errors import ForeignValue, Refused, Unavailable
from magnetar_protos.ledger_pb2 import BookieRecord, ScrubPosition
from magnetar_wire.clock import Clock

__all__ = ["Scrubber"]

_log = logging.getLogger(__name__)
# What is listed, and what is read, at a time.
_LEDGERS: Final = 100
_RECORDS: Final = 500
_READ_BYTES: Final = 1_048_576
# Its place is written down so often: what was looked at since is looked at again after a crash.
_KEEP_S: Final = 60.0
# Of so many ledgers it is remembered that they were reported in this pass; further ones may be more than once.
_REPORTED: Final = 10_000


class Scrubber:
    """One bookie's, as long as its process lives."""

    def __init__(self, bookie: Bookie, clock: Clock) -> None:
        self._bookie = bookie
        self._clock = clock
        # Where it is: all before was looked at, and what was found reported.
        self.position = ScrubPosition()
        self.position.CopyFrom(bookie.record.scrub)
        self._kept_at = clock.monotonic()
        # Ledgers that were reported in this pass.
        self._reported: dict[int, None] = {}

    async def run(self, client: LedgerClient) -> None:
        """Until it is cancelled or the session lost (`SessionLost`)."""
        interval_s = self._bookie.settings.scrub_interval_seconds
        while interval_s:
            await self._clock.sleep(scrub.due_in_s(self.position, self._clock.time_ms(), interval_s))
            await self._pass(client)

    async def _pass(self, client: LedgerClient) -> None:
        self.position = scrub.began(self.position, self._clock.time_ms())
        while portion := self._bookie.storage.ledger_ids(self.position.ledger_id, _LEDGERS):
            began = self._clock.monotonic()
            for ledger_id in portion:
                first = self.position.entry_id if ledger_id == self.position.ledger_id else 0
                await self._look_through(ledger_id, first, client)
            self._at(portion[-1] + 1)
            await self._pause(began, ledgers=len(portion))
        self._reported.clear()
        self._at(self.position.ledger_id, done=True)
        self._bookie.counters.scrub_passes += 1
        await self._keep()
        took_s = (self._clock.time_ms() - self.position.began_ms) / 1000
        if took_s > self._bookie.settings.scrub_interval_seconds:
            _log.warning(
                "A pass over all entries took %.0f s, longer than scrub_interval_seconds of %s s: raise "
                "scrub_max_bytes_per_second",
                took_s,
                self._bookie.settings.scrub_interval_seconds,
            )

    async def _look_through(self, ledger_id: int, first: int, client: LedgerClient) -> None:
        bookie = self._bookie
        while held := bookie.storage.entry_ids(ledger_id, first, MAX_ENTRY_ID, _RECORDS):
            began = self._clock.monotonic()
            records = await bookie.reader.read(ledger_id, held, _READ_BYTES)
            damaged = [entry_id for entry_id, one in zip(held, records, strict=False) if isinstance(one, Damaged)]
            if damaged:
                await self._found(ledger_id, damaged, client)
            size_bytes = sum(len(one) for one in records if isinstance(one, bytes))
            bookie.counters.scrubbed_records += len(records)
            bookie.counters.scrubbed_bytes += size_bytes
            first = held[len(records) - 1] + 1
            self._at(ledger_id, first)
            await self._pause(began, size_bytes, len(records))

    async def _found(self, ledger_id: int, damaged: Sequence[int], client: LedgerClient) -> None:
        """Write a repair task if repair would mend any of the damage. Retries until the metadata store answers."""
        if ledger_id in self._reported or self._bookie.is_deleted(ledger_id):
            return
        while True:
            try:
                repairable = await self._repairable(ledger_id, damaged, client)
                if not repairable:
                    return
                await UnderreplicatedLedgers(client).mark_underreplicated(ledger_id)
                break
            except (Refused, Unavailable) as error:
                _log.info("The damage of ledger %d can't be reported yet: %s", ledger_id, error)
            await self._clock.sleep(self._bookie.settings.metadata_retry_seconds)
        _log.warning("%d entries of ledger %d are damaged; the first is %d", len(repairable), ledger_id, repairable[0])
        if len(self._reported) < _REPORTED:
            self._reported[ledger_id] = None

    async def _repairable(self, ledger_id: int, damaged: Sequence[int], client: LedgerClient) -> list[int]:
        try:
            metadata = await client.ledgers.read(ledger_id, fresh=True)
        except NoSuchLedger:
            return []
        except (ForeignValue, LedgerError) as error:
            client.ledgers.foreign.pass_over(paths.ledger(ledger_id), error)
            return []
        return repairable_entries(metadata, self._bookie.bookie_id, damaged)

    def _at(self, ledger_id: int, entry_id: int = 0, *, done: bool = False) -> None:
        self.position = scrub.goes_on_at(self.position, ledger_id, entry_id, done=done)

    async def _pause(self, began: float, size_bytes: int = 0, records: int = 0, ledgers: int = 0) -> None:
        took_s = self._clock.monotonic() - began
        rate = self._bookie.settings.scrub_max_bytes_per_second
        await self._clock.sleep(scrub.pause_s(size_bytes, records, ledgers, took_s, rate))
        if self._clock.monotonic() >= self._kept_at + _KEEP_S:
            await self._keep()

    async def _keep(self) -> None:
        self._kept_at = self._clock.monotonic()
        record = BookieRecord()
        record.CopyFrom(self._bookie.record)
        record.scrub.CopyFrom(self.position)
        await self._bookie.write_record(record)
