"""What all parts of a ledger client share: the metadata, the bookies, clock, randomness and settings.

`LedgerClient` is a context with the operations on ledgers. It belongs to one metadata session. When that is lost, the
client is closed and another one created: its writers could not change an ensemble any more, and its view of the bookies
would become stale.
"""

from __future__ import annotations

from magnetar_bookie.ledger.bookies import Bookies
from magnetar_bookie.ledger.ledger_metadata_store import LedgerMetadataStore
from magnetar_bookie.ledger.recovery_budget import RecoveryBudget
from magnetar_bookie.settings.ledger_client import LedgerClientSettings
from magnetar_metadata.store import MetadataStore
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
