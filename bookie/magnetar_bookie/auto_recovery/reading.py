"""Getting the records that a slot lacks from whoever has them.

Each entry is asked of its sources in order; entries with the same source are asked for together, as runs. A source that
could not be reached is not asked again in the same repair. A record is taken if it proves to be the one that was asked
for. Every round either brings a record or crosses a source off an entry's list, whatever a bookie answers; so it ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from magnetar_bookie.core.repair import FillSlot, Run, runs, sources
from magnetar_bookie.ledger.ledger_client import LedgerClient
from magnetar_bookie.ledger.ledger_metadata import LedgerMetadata
from magnetar_bookie.read.read_answer import BadAnswer, MissingReason, parse_read_answer
from magnetar_protos.ledger_pb2 import ReadAnswer, ReadRequest
from magnetar_wire.transport import TransportError

__all__ = ["SlotReader"]


class SlotReader:
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
            candidates = sources(self._metadata, self._step, entry_id, self._client.bookies.registered())
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
                bookie_id, "read", request, ReadAnswer, timeout_s=self._client.settings.read_entry_timeout_seconds
            )
            read = parse_read_answer(request, answer)
        except TransportError as error:
            self._not_reached[bookie_id] = str(error)
            return {}
        except BadAnswer as error:
            for entry_id in range(run.first, run.last + 1, run.step):
                self._note(entry_id, bookie_id, str(error))
            return {}
        records: dict[int, bytes] = {}
        for entry_id, found in read.entries.items():
            if isinstance(found, MissingReason):
                self._note(entry_id, bookie_id, found.value)
            else:
                records[entry_id] = found
        return records

    def _note(self, entry_id: int, bookie_id: str, answer: str) -> None:
        """The bookie did not give this entry, and will not be asked for it again."""
        self._answers.setdefault(entry_id, {})[bookie_id] = answer
