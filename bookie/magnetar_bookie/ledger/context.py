"""What every part of a ledger client works with: the metadata, the bookies, time, chance and the settings.

`LedgerClient` is one, with the parts on top. A context is one metadata session's: when that is lost the client is
closed and another one made, since its writers could not change an ensemble any more, and what it knows of the bookies
grows old.
"""

from __future__ import annotations

from magnetar_bookie.ledger.bookies import Bookies
from magnetar_bookie.ledger.ledger_metadata_store import LedgerMetadataStore
from magnetar_bookie.ledger.placement import Placement, SpreadPlacement
from magnetar_bookie.ledger.recovery_budget import RecoveryBudget
from magnetar_bookie.settings.ledger_client import LedgerClientSettings
from magnetar_metadata.store import MetadataStore
from magnetar_wire.clock import Clock
from magnetar_wire.randomness import Randomness
from magnetar_wire.transport import Transport

__all__ = ["LedgerContext"]


class LedgerContext:
    def __init__(
        self,
        metadata: MetadataStore,
        transport: Transport,
        clock: Clock,
        randomness: Randomness,
        settings: LedgerClientSettings | None = None,
        placement: Placement | None = None,
    ) -> None:
        self.clock = clock
        self.randomness = randomness
        self.settings = settings or LedgerClientSettings()
        self.placement = placement or SpreadPlacement()
        self.ledgers = LedgerMetadataStore(metadata, clock, randomness)
        self.bookies = Bookies(metadata, transport, clock, self.settings)
        self.recovery_budget = RecoveryBudget(self.settings.max_recovery_bytes)
