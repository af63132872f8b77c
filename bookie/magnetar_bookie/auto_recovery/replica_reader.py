"""Read the records that a slot lacks from other bookies.

For each entry the bookies are tried in the order of `list_sources`; entries with the same source are read together. A
bookie that could not be reached is not tried again in the same repair. A record is accepted if its checksum and ids are
right. In each round, every entry gets its record or loses a source, for any answers of the bookies. So `read` ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from magnetar_bookie.auto_recovery.ledger_repair_rules import EntryRun, SlotRepair, group_in_runs, list_sources
from magnetar_bookie.client.ledger_client import LedgerClient
from magnetar_bookie.core.ledger_metadata import LedgerMetadata
from magnetar_bookie.read.read_answer import BadAnswer, Lack, read_entries
from magnetar_protos.ledger_pb2 import ReadAnswer, ReadRequest
from magnetar_wire.transport import TransportError

__all__ = ["ReplicaReader"]


class ReplicaReader:
    """Reads entries of one slot."""

    def __init__(self, client: LedgerClient, ledger_id: int, metadata: LedgerMetadata, step: SlotRepair) -> None:
        self._client = client
        self._ledger_id = ledger_id
        self._metadata = metadata
        self._step = step
        # By requested entry and bookie: what the bookie answered instead of a record.
        self._refusals: dict[int, dict[str, str]] = {}
        # By bookie: the error with which it could not be reached.
        self._unreachable: dict[str, str] = {}
        # Entries that no bookie has sent, and what each of them answered.
        self.unreadable: dict[int, dict[str, str]] = {}

    async def read(self, entry_ids: Sequence[int], max_bytes: int) -> dict[int, bytes]:
        """Return records of some of the entries: of at least one, unless all of them are `unreadable`."""
        records: dict[int, bytes] = {}
        bytes_left = max_bytes
        while bytes_left > 0:
            by_source = self._choose_sources(
                one for one in entry_ids if one not in records and one not in self.unreadable
            )
            if not by_source:
                break
            for bookie_id, wanted in by_source.items():
                for run in group_in_runs(self._metadata.striping, wanted):
                    if bytes_left > 0:
                        received = await self._read_run(bookie_id, run, bytes_left)
                        records.update(received)
                        bytes_left -= sum(map(len, received.values()))
        for entry_id in records:
            self._refusals.pop(entry_id, None)
        return records

    def _choose_sources(self, entry_ids: Iterable[int]) -> dict[str, list[int]]:
        """Return the entries by the bookie that is tried next. Those without one become `unreadable`."""
        by_source: dict[str, list[int]] = {}
        for entry_id in entry_ids:
            refusals = self._refusals.setdefault(entry_id, {})
            candidates = list_sources(self._metadata, self._step, entry_id, self._client.bookies.alive())
            for bookie_id in candidates:
                if bookie_id in self._unreachable:
                    refusals.setdefault(bookie_id, self._unreachable[bookie_id])
            source = next((one for one in candidates if one not in refusals), None)
            if source is None:
                self.unreadable[entry_id] = self._refusals.pop(entry_id)
            else:
                by_source.setdefault(source, []).append(entry_id)
        return by_source

    async def _read_run(self, bookie_id: str, run: EntryRun, max_bytes: int) -> dict[int, bytes]:
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
            read = read_entries(request, answer)
        except TransportError as error:
            self._unreachable[bookie_id] = str(error)
            return {}
        except BadAnswer as error:
            for entry_id in range(run.first, run.last + 1, run.step):
                self._record_refusal(entry_id, bookie_id, str(error))
            return {}
        records: dict[int, bytes] = {}
        for entry_id, record in read.entries.items():
            if isinstance(record, Lack):
                self._record_refusal(entry_id, bookie_id, record.value)
            else:
                records[entry_id] = record
        return records

    def _record_refusal(self, entry_id: int, bookie_id: str, answer: str) -> None:
        """Record that the bookie did not send the entry. It is not tried for that entry again."""
        self._refusals.setdefault(entry_id, {})[bookie_id] = answer
