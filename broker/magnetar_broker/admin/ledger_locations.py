"""The bookies that store the entries of ledgers, for plans.

For the current ledger its writer knows them. For a closed one they are read from the metadata store and cached for a
while: a stream's plans name the same ledgers again and again, and a topic may have thousands. A repair may have
replaced a dead bookie since; a reader that finds nothing at the bookies of a plan requests a fresh one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from magnetar_bookie.errors import LedgerDeleted, LedgerError, NoSuchLedger
from magnetar_bookie.ledger.ledger_client import LedgerClient
from magnetar_bookie.ledger.ledger_metadata import LedgerMetadata, LedgerState
from magnetar_bookie.read.striping import Fragment, Striping
from magnetar_broker.admin.map_bounded import map_bounded
from magnetar_broker.errors import BrokerError
from magnetar_broker.managed_ledger.managed_ledger import ManagedLedger
from magnetar_metadata.errors import MetadataError
from magnetar_protos.broker_pb2 import ErrorCode

__all__ = ["LedgerLocation", "LedgerLocations"]

_MAX_CACHED: Final = 16_384
_CACHE_TTL_S: Final = 300.0
_CONCURRENCY: Final = 16


@dataclass(frozen=True, slots=True)
class LedgerLocation:
    striping: Striping
    fragments: tuple[Fragment, ...]
    # The ledger was closed when this was read. Else copies of entries of the last fragment may be in flight.
    closed: bool
    # On the monotonic clock.
    read_at: float

    def fragments_of(self, first: int, last: int) -> list[Fragment]:
        """Return the fragments that contain some of these entries."""
        ends = [fragment.first_entry_id for fragment in self.fragments[1:]]
        return [
            fragment
            for fragment, end in zip(self.fragments, [*ends, last + 1], strict=True)
            if fragment.first_entry_id <= last and end > first
        ]


class LedgerLocations:
    """The cache of one metadata session."""

    def __init__(self, client: LedgerClient) -> None:
        self._client = client
        # The least recently used first.
        self._known: dict[int, LedgerLocation] = {}

    async def find(
        self, log: ManagedLedger, ledger_ids: Sequence[int], *, fresh: bool
    ) -> dict[int, LedgerLocation] | None:
        """Return the locations of these ledgers of the log; None: one of them was deleted. Raises `BrokerError`."""
        found: dict[int, LedgerLocation] = {}
        missing: list[int] = []
        now = self._client.clock.monotonic()
        for ledger_id in ledger_ids:
            current = log.reads.get_current_metadata(ledger_id)
            if current is not None:
                found[ledger_id] = LedgerLocation(current.striping, current.fragments, current.is_closed, now)
                continue
            location = self._known.pop(ledger_id, None)
            if location is None or fresh or now - location.read_at > _CACHE_TTL_S:
                missing.append(ledger_id)
            else:
                found[ledger_id] = self._known[ledger_id] = location
        if missing:
            read = await map_bounded(missing, lambda one: self._read(one, fresh=fresh), _CONCURRENCY)
            for ledger_id, location in zip(missing, read, strict=True):
                if location is None:
                    if log.ledger_list.find(ledger_id) is not None:
                        # A trimmed ledger leaves the list before it is deleted.
                        raise BrokerError(
                            ErrorCode.PERSISTENCE_ERROR,
                            f"ledger {ledger_id} was deleted, and {log.name} still has it",
                        )
                    return None
                found[ledger_id] = location
        return found

    async def _read(self, ledger_id: int, *, fresh: bool) -> LedgerLocation | None:
        try:
            metadata = await self._client.ledgers.read_metadata(ledger_id, fresh=fresh)
            if metadata.state in (LedgerState.OPEN, LedgerState.IN_RECOVERY) and not fresh:
                # The list has it as closed: the server lags, and returned an older value.
                metadata = await self._client.ledgers.read_metadata(ledger_id, fresh=True)
        except (NoSuchLedger, LedgerDeleted):
            return None
        except (LedgerError, MetadataError) as error:
            raise BrokerError(
                ErrorCode.METADATA_ERROR, f"the bookies of ledger {ledger_id} can't be read now: {error}"
            ) from error
        if metadata.state is LedgerState.TOMBSTONE:
            return None
        return self._cache(ledger_id, metadata)

    def _cache(self, ledger_id: int, metadata: LedgerMetadata) -> LedgerLocation:
        location = LedgerLocation(
            metadata.striping, metadata.fragments, metadata.is_closed, self._client.clock.monotonic()
        )
        if metadata.is_closed:
            self._known[ledger_id] = location
            if len(self._known) > _MAX_CACHED:
                del self._known[next(iter(self._known))]
        return location
