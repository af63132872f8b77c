"""Which bookies hold which entries of ledgers, as plans tell it.

Of a ledger that is written its writer knows. Of closed ones the metadata store is asked, and what it answered is kept
for a while: a stream's plans name the same ledgers again and again, and a topic may have thousands. Repair may have put
another bookie in the place of a dead one meanwhile; whoever finds nothing where a plan said asks for a fresh one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from magnetar_bookie.client.ledger_client import LedgerClient
from magnetar_bookie.core.ledger_metadata import LedgerMetadata, LedgerState
from magnetar_bookie.errors import LedgerDeleted, LedgerError, NoSuchLedger
from magnetar_bookie.read.striping import Fragment, Striping
from magnetar_broker.admin.map_bounded import map_bounded
from magnetar_broker.errors import BrokerError
from magnetar_broker.managed_ledger.managed_ledger import ManagedLedger
from magnetar_metadata.errors import MetadataError
from magnetar_protos.broker_pb2 import ErrorCode

__all__ = ["LedgerLocation", "LedgerLocations"]

_MOST: Final = 16_384
_KEPT_S: Final = 300.0
_AT_A_TIME: Final = 16


@dataclass(frozen=True, slots=True)
class LedgerLocation:
    striping: Striping
    fragments: tuple[Fragment, ...]
    # The ledger was closed when this was read. Else copies of entries of the last fragment may be in flight.
    closed: bool
    # On the monotonic clock.
    read_at: float

    def of_entries(self, first: int, last: int) -> list[Fragment]:
        """Those that hold some of these entries."""
        ends = [fragment.first_entry_id for fragment in self.fragments[1:]]
        return [
            fragment
            for fragment, end in zip(self.fragments, [*ends, last + 1], strict=True)
            if fragment.first_entry_id <= last and end > first
        ]


class LedgerLocations:
    """One metadata session's."""

    def __init__(self, client: LedgerClient) -> None:
        self._client = client
        # Used least lately first.
        self._known: dict[int, LedgerLocation] = {}

    async def of(
        self, log: ManagedLedger, ledger_ids: Sequence[int], *, fresh: bool
    ) -> dict[int, LedgerLocation] | None:
        """Those of these ledgers of the log; None: one of them is there no more. Raises `BrokerError`."""
        found: dict[int, LedgerLocation] = {}
        missing: list[int] = []
        now = self._client.clock.monotonic()
        for ledger_id in ledger_ids:
            written = log.metadata_of(ledger_id)
            if written is not None:
                found[ledger_id] = LedgerLocation(written.striping, written.fragments, written.closed, now)
                continue
            home = self._known.pop(ledger_id, None)
            if home is None or fresh or now - home.read_at > _KEPT_S:
                missing.append(ledger_id)
            else:
                found[ledger_id] = self._known[ledger_id] = home
        if missing:
            read = await map_bounded(missing, lambda one: self._read(one, fresh=fresh), _AT_A_TIME)
            for ledger_id, home in zip(missing, read, strict=True):
                if home is None:
                    if log.listed.find(ledger_id) is not None:
                        # What is trimmed leaves the list before it is deleted.
                        raise BrokerError(
                            ErrorCode.PERSISTENCE_ERROR, f"ledger {ledger_id} is gone, though {log.name} has it still"
                        )
                    return None
                found[ledger_id] = home
        return found

    async def _read(self, ledger_id: int, *, fresh: bool) -> LedgerLocation | None:
        try:
            metadata = await self._client.ledgers.read(ledger_id, fresh=fresh)
            if metadata.state in (LedgerState.OPEN, LedgerState.IN_RECOVERY) and not fresh:
                # The list says that it is closed: a server that lags told what was before.
                metadata = await self._client.ledgers.read(ledger_id, fresh=True)
        except (NoSuchLedger, LedgerDeleted):
            return None
        except (LedgerError, MetadataError) as error:
            raise BrokerError(
                ErrorCode.METADATA_ERROR, f"where ledger {ledger_id} is can't be found out now: {error}"
            ) from error
        if metadata.state is LedgerState.TOMBSTONE:
            return None
        return self._keep(ledger_id, metadata)

    def _keep(self, ledger_id: int, metadata: LedgerMetadata) -> LedgerLocation:
        home = LedgerLocation(metadata.striping, metadata.fragments, metadata.closed, self._client.clock.monotonic())
        if metadata.closed:
            self._known[ledger_id] = home
            if len(self._known) > _MOST:
                del self._known[next(iter(self._known))]
        return home
