"""What all parts of a ledger client share: the metadata, the bookies, clock, randomness and settings.

`LedgerClient` is a context with the operations on ledgers. It belongs to one metadata session. When that is lost, the
client is closed and another one created: its writers could not change an ensemble any more, and its view of the bookies
would become stale.
"""

from __future__ import annotations

from magnetar_bookie.ledger.bookies import Bookies
from magnetar_bookie.ledger.ledger_metadata import LedgerMetadata
from magnetar_bookie.ledger.ledger_metadata_store import LedgerMetadataStore
from magnetar_bookie.ledger.recovery_budget import RecoveryBudget
from magnetar_bookie.read.entry_reader import EntryReader
from magnetar_bookie.settings.ledger_client import LedgerClientSettings
from magnetar_metadata.store import MetadataStore
from magnetar_protos.ledger_pb2 import ReadAnswer, ReadRequest
from magnetar_wire.clock import Clock
from magnetar_wire.randomness import Randomness
from magnetar_wire.transport import Transport

__all__ = ["LedgerContext"]


class LedgerContext:
    """What all parts of one ledger client share."""

    def __init__(
        self,
        metadata: MetadataStore,
        transport: Transport,
        clock: Clock,
        randomness: Randomness,
        settings: LedgerClientSettings | None = None,
    ) -> None:
        self.clock = clock
        self.randomness = randomness
        self.settings = settings or LedgerClientSettings()
        self.ledgers = LedgerMetadataStore(metadata, clock, randomness)
        self.bookies = Bookies(metadata, transport, clock, self.settings)
        self.recovery_budget = RecoveryBudget(self.settings.max_recovery_bytes)

    def create_entry_reader(self, ledger_id: int, metadata: LedgerMetadata) -> EntryReader:
        """Return a reader of the ledger's entries, which reads from the bookies of `metadata`."""
        return EntryReader(
            ledger_id,
            metadata.striping,
            metadata.fragments,
            self._send_read,
            self.clock,
            timeout_s=self.settings.read_entry_timeout_seconds,
            speculative_timeout_s=self.settings.speculative_read_timeout_ms / 1000,
        )

    async def _send_read(self, bookie_id: str, request: ReadRequest, timeout_s: float) -> ReadAnswer:
        return await self.bookies.call(bookie_id, "read", request, ReadAnswer, timeout_s=timeout_s)
