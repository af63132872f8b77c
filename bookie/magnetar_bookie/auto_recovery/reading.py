"""Getting the records that a slot lacks from whoever has them.

Each entry is asked of its sources in order; entries with the same source are asked for together, as runs. A source that
could not be reached is not asked again in the same repair. A record is taken if it proves to be the one that was asked
for. Every round either brings a record or crosses a source off an entry's list, whatever a bookie answers; so it ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from magnetar_bookie.auto_recovery.inventory import status_name
from magnetar_bookie.core.ledger_metadata import LedgerMetadata
from magnetar_bookie.core.repair import FillSlot, Run, runs, sources
from magnetar_bookie.read.record import BadRecord, check_record
from magnetar_protos.ledger_pb2 import OK, ReadAnswer, ReadRequest
from magnetar_wire.transport import TransportError

if TYPE_CHECKING:
    from magnetar_bookie.client.ledger_client import LedgerClient

__all__ = ["RecordReader"]


class RecordReader:
    """Reads for one slot of one ledger."""

    def __init__(self, client: LedgerClient, ledger_id: int, metadata: LedgerMetadata, step: FillSlot) -> None:
        self._client = client
        self._ledger_id = ledger_id
        self._metadata = metadata
        self._step = step
        # Of entries that were asked for: what each source answered instead of a record.
        self._answers: dict[int, dict[str, str]] = {}
        self._not_reached: dict[str, str] = {}
        # Entries that nobody could give, and what each source answered.
        self.unreadable: dict[int, dict[str, str]] = {}

    async def read(self, entry_ids: Sequence[int], max_bytes: int) -> dict[int, bytes]:
        """Records of some of the entries, one at least unless all of them prove `unreadable`."""
        found: dict[int, bytes] = {}
        room = max_bytes
        while room > 0:
            asked = self._next_sources(one for one in entry_ids if one not in found and one not in self.unreadable)
            if not asked:
                break
            for bookie_id, wanted in asked.items():
                for run in runs(self._metadata.striping, wanted):
                    if room > 0:
                        records = await self._ask(bookie_id, run, room)
                        found.update(records)
                        room -= sum(map(len, records.values()))
        for entry_id in found:
            self._answers.pop(entry_id, None)
        return found

    def _next_sources(self, entry_ids: Iterable[int]) -> dict[str, list[int]]:
        asked: dict[str, list[int]] = {}
        for entry_id in entry_ids:
            answers = self._answers.setdefault(entry_id, {})
            candidates = sources(self._metadata, self._step, entry_id, self._client.bookies.alive())
            for bookie_id in candidates:
                if bookie_id in self._not_reached:
                    answers.setdefault(bookie_id, self._not_reached[bookie_id])
            source = next((one for one in candidates if one not in answers), None)
            if source is None:
                self.unreadable[entry_id] = self._answers.pop(entry_id)
            else:
                asked.setdefault(source, []).append(entry_id)
        return asked

    async def _ask(self, bookie_id: str, run: Run, max_bytes: int) -> dict[int, bytes]:
        request = ReadRequest(
            ledger_id=self._ledger_id,
            first_entry_id=run.first,
            last_entry_id=run.last,
            step=run.step,
            max_bytes=max_bytes,
        )
        try:
            answer = await self._client.bookies.call(
                bookie_id, "read", request, ReadAnswer, timeout_s=self._client.options.read_entry_timeout_s
            )
        except TransportError as error:
            self._not_reached[bookie_id] = str(error)
            return {}
        records = self._good_records(run, answer)
        self._note_refusals(bookie_id, run, answer, records)
        return records

    def _good_records(self, run: Run, answer: ReadAnswer) -> dict[int, bytes]:
        good: dict[int, bytes] = {}
        for record in answer.records:
            entry_id = int.from_bytes(record[8:16], "big")
            if entry_id in run:
                try:
                    check_record(record, self._ledger_id, entry_id)
                except BadRecord:
                    continue
                good[entry_id] = record
        return good

    def _note_refusals(self, bookie_id: str, run: Run, answer: ReadAnswer, records: dict[int, bytes]) -> None:
        """What the bookie did not give, and will not be asked for again."""
        told = dict.fromkeys(answer.absent, "it never got it")
        told |= dict.fromkeys(answer.unknown, "it may have lost it")
        told |= dict.fromkeys(answer.damaged, "it has it damaged")
        # An answer that ends early is to be gone on with, if it said anything at all.
        end = answer.next_entry_id if answer.status == OK and run.first < answer.next_entry_id else run.last + 1
        for entry_id in range(run.first, min(end, run.last + 1), run.step):
            if entry_id not in records:
                reason = told.get(entry_id, "it gave no good record of it")
                reason = reason if answer.status == OK else status_name(answer.status)
                self._answers.setdefault(entry_id, {})[bookie_id] = reason
