"""Reads the entries of a topic's log: from the cache, or else from their ledgers (uncached_entry_reader.py).

The errors of ledgers become those of the broker here, and each lost entry that is found is reported. A read of a ledger
that is trimmed in the meantime finds nothing there.
"""

from __future__ import annotations

from collections.abc import Sequence

from magnetar_bookie.errors import LedgerError, Unreadable
from magnetar_bookie.ledger.ledger_client import LedgerClient
from magnetar_bookie.ledger.ledger_metadata import LedgerMetadata
from magnetar_broker.errors import BrokerError, LostEntry, UnreadableEntry
from magnetar_broker.managed_ledger.appender import Appender
from magnetar_broker.managed_ledger.entry_cache import CachedEntries
from magnetar_broker.managed_ledger.log_entry import LogEntry
from magnetar_broker.managed_ledger.lost_entries import LostEntries
from magnetar_broker.managed_ledger.topic_node import TopicNode
from magnetar_broker.managed_ledger.uncached_entry_reader import UncachedEntryReader
from magnetar_broker.position import Position
from magnetar_metadata.errors import MetadataError
from magnetar_protos.broker_pb2 import ErrorCode

__all__ = ["LogReader"]


class LogReader:
    """The methods that read raise `TopicUnloaded` if the log has ended."""

    __slots__ = ("_appender", "_cached", "_client", "_lost_entries", "_node", "_uncached_reader")

    def __init__(
        self,
        node: TopicNode,
        client: LedgerClient,
        cached: CachedEntries,
        appender: Appender,
        lost_entries: LostEntries,
    ) -> None:
        self._node = node
        self._client = client
        self._cached = cached
        self._appender = appender
        self._lost_entries = lost_entries
        # None until the first read of an entry that is not cached.
        self._uncached_reader: UncachedEntryReader | None = None

    def read_nowait(self, start: Position, max_entries: int, max_bytes: int) -> list[LogEntry] | None:
        """As in `Log`. Raises `TopicUnloaded`."""
        self._appender.check_open()
        ledger_list = self._node.ledger_list
        position = ledger_list.at_or_after(start)
        if position is None:
            return []
        table = self._cached.table
        entry = self._cached.get(position)
        if entry is None or table is None:
            return None
        found = [entry]
        left, last = max_bytes - len(entry.stored), ledger_list.last
        while len(found) < max_entries and position != last:
            ledger_id, entry_id = position
            following = table.get(Position(ledger_id, entry_id + 1))
            if following is None:
                position = ledger_list.at_or_after(Position(ledger_id, entry_id + 1))
                following = None if position is None else table.get(position)
                if following is None:
                    break
            left -= len(following.stored)
            if left < 0:
                break
            found.append(following)
            position = following.position
        return found

    async def read(self, start: Position, max_entries: int, max_bytes: int) -> list[LogEntry]:
        """As in `Log`. Raises `BrokerError`, `TopicUnloaded` and `DamagedEntry` among them."""
        while True:
            cached = self.read_nowait(start, max_entries, max_bytes)
            if cached is not None:
                return cached
            position = self._node.ledger_list.at_or_after(start)
            assert position is not None
            found = self._node.ledger_list.find(position.ledger_id)
            assert found is not None
            try:
                return await self._reader().read(
                    position, found, self.get_current_metadata(position.ledger_id), max_entries, max_bytes
                )
            except UnreadableEntry as error:
                self._lost_entries.report(error)
                raise
            except (LedgerError, MetadataError) as error:
                if self._node.ledger_list.find(position.ledger_id) is None:
                    continue  # it was trimmed in the meantime
                raise self._unreadable(position, error) from error

    async def read_at(self, positions: Sequence[Position], max_bytes: int | None = None) -> list[LogEntry | None]:
        """As in `Log`. Raises `BrokerError`."""
        self._appender.check_open()
        found: dict[Position, LogEntry] = {}
        missing: dict[int, list[int]] = {}
        for position in positions:
            entry = self._cached.get(position)
            if entry is not None:
                found[position] = entry
            elif self._node.ledger_list.holds(position):
                missing.setdefault(position.ledger_id, []).append(position.entry_id)
        end = len(positions)
        for ledger_id, entry_ids in missing.items():
            wanted = sorted(dict.fromkeys(entry_ids))
            if max_bytes is not None and max_bytes <= 0:
                end = positions.index(Position(ledger_id, wanted[0]))
                break
            read = await self._read_some(ledger_id, wanted, max_bytes)
            found.update(read)
            if max_bytes is not None and read:
                max_bytes -= sum(len(entry.stored) for entry in read.values())
                if len(read) < len(wanted):
                    end = positions.index(Position(ledger_id, wanted[len(read)]))
                    break
        return [found.get(position) for position in positions[:end]]

    async def read_stored(self, position: Position) -> LogEntry | None:
        """Read the entry from a bookie, not from the cache; None: there is none."""
        self._appender.check_open()
        if not self._node.ledger_list.holds(position):
            return None
        return (await self._read_some(position.ledger_id, [position.entry_id])).get(position)

    async def read_record(self, position: Position) -> bytes | None:
        """Read the entry's record from a bookie; None: there is no such entry (any more). Raises `BrokerError`."""
        self._appender.check_open()
        ledger_list = self._node.ledger_list
        if (listed := ledger_list.find(position.ledger_id)) is None or not ledger_list.holds(position):
            return None
        try:
            return await self._reader().read_record(
                listed, self.get_current_metadata(position.ledger_id), position.entry_id
            )
        except (LedgerError, MetadataError) as error:
            if ledger_list.find(position.ledger_id) is None:
                return None  # it was trimmed in the meantime
            raise self._unreadable(position, error) from error

    def get_current_metadata(self, ledger_id: int) -> LedgerMetadata | None:
        """Return the metadata of the current ledger, as its writer has them; None: the ledger is another one."""
        current = self._appender.current_ledger
        return current.writer.metadata if current is not None and current.writer.ledger_id == ledger_id else None

    def forget_up_to(self, position: Position) -> None:
        """Forget the entries up to this position: they were deleted from the log."""
        self._cached.drop_up_to(position)
        if self._uncached_reader is not None:
            self._uncached_reader.forget_up_to(position)
        self._lost_entries.forget_ledgers(position.ledger_id)

    def close(self) -> None:
        """Free the memory: the log has ended."""
        self._cached.drop_all()
        if self._uncached_reader is not None:
            self._uncached_reader.close()

    async def _read_some(
        self, ledger_id: int, entry_ids: list[int], max_bytes: int | None = None
    ) -> dict[Position, LogEntry]:
        listed = self._node.ledger_list.find(ledger_id)
        if listed is None:
            return {}  # it was trimmed in the meantime
        try:
            return await self._reader().read_some(listed, self.get_current_metadata(ledger_id), entry_ids, max_bytes)
        except UnreadableEntry as error:
            self._lost_entries.report(error)
            raise
        except (LedgerError, MetadataError) as error:
            if self._node.ledger_list.find(ledger_id) is None:
                return {}
            raise self._unreadable(Position(ledger_id, entry_ids[0]), error) from error

    def _reader(self) -> UncachedEntryReader:
        if self._uncached_reader is None:
            self._uncached_reader = UncachedEntryReader(self._client, self._cached.read_ahead)
        return self._uncached_reader

    def _unreadable(self, position: Position, error: Exception) -> BrokerError:
        """Return the error of a read from `position`. A lost entry is reported."""
        if isinstance(error, Unreadable):
            if error.entry_id is not None:
                position = Position(position.ledger_id, error.entry_id)
            if error.is_lost:
                lost = LostEntry(position, error)
                self._lost_entries.report(lost)
                return lost
        return BrokerError(ErrorCode.PERSISTENCE_ERROR, f"entry {position} can't be read now: {error}")
