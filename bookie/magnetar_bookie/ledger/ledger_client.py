"""A process' way to the ledgers: makes, writes, reads, recovers and deletes them.

A client is one metadata session's; context.py says what that means.

Each method says which `LedgerError` it raises. Besides, whatever goes to the metadata store raises `SessionLost` when
the session is over, `Unavailable` where the store gave no answer for long, and then nothing was done, `StoreFull`, and
`ForeignValue` or a plain `LedgerError` where what stands there can't be read.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from magnetar_bookie.errors import EnsembleOutdated
from magnetar_bookie.ledger import ledger_metadata
from magnetar_bookie.ledger.context import LedgerContext
from magnetar_bookie.ledger.ensemble_choice import EnsembleChoice
from magnetar_bookie.ledger.ledger_metadata import LedgerMetadata
from magnetar_bookie.ledger.ledger_metadata_store import NewLedger
from magnetar_bookie.ledger.ledger_reader import LedgerReader
from magnetar_bookie.ledger.ledger_writer import LedgerWriter
from magnetar_bookie.ledger.placement import Placement
from magnetar_bookie.ledger.recovery import recover
from magnetar_bookie.read.striping import Striping
from magnetar_bookie.settings.ledger_client import LedgerClientSettings
from magnetar_metadata.store import MetadataStore
from magnetar_wire.clock import Clock
from magnetar_wire.randomness import Randomness
from magnetar_wire.transport import Transport

__all__ = ["LedgerClient"]


class LedgerClient(LedgerContext):
    def __init__(
        self,
        metadata: MetadataStore,
        transport: Transport,
        clock: Clock,
        randomness: Randomness,
        settings: LedgerClientSettings | None = None,
        placement: Placement | None = None,
    ) -> None:
        super().__init__(metadata, transport, clock, randomness, settings, placement)
        # Those that are neither closed nor abandoned, oldest first.
        self._writers: dict[int, LedgerWriter] = {}
        self._choice = EnsembleChoice(self)

    async def start(self) -> None:
        """Returns when the bookies are known. Raises `ClientClosed` if it is closed meanwhile."""
        await self.bookies.start()

    async def close(self) -> None:
        """Abandons the writers that there are still.

        Their pending adds fail with `WriterClosed`, a close that is under way with `CloseLost` or `OutcomeNotKnown`.
        Reads find no bookie any more, and tails end with `ClientClosed`.
        """
        for writer in list(self._writers.values()):
            writer.abandon()
        await self.bookies.close()

    async def create(
        self,
        striping: Striping,
        purpose: str,
        properties: Mapping[str, bytes] | None = None,
        *,
        explicit_lac: bool = True,
    ) -> tuple[NewLedger, LedgerWriter]:
        """Makes a ledger. Its owner records it with `LedgerMetadataStore.claim_ledger`, or it will be swept. Without
        `explicit_lac` a silent writer does not send its LAC, for ledgers that nobody reads before they are recovered.

        With fewer bookies than an ensemble takes, but an ack quorum, it is made degraded. With fewer than that this
        raises `NotEnoughBookies`, which says who is missing and why: `wait_for_bookies` and try again.
        `ValueTooLarge`: the properties don't fit into a node.
        """
        while True:
            ensemble = await self._choice.choose(striping)
            size = len(ensemble)
            actual = Striping(size, min(striping.write_quorum, size), striping.ack_quorum)
            try:
                made = await self.ledgers.create_ledger(
                    ensemble,
                    actual,
                    wanted_ensemble_size=striping.ensemble_size,
                    purpose=purpose,
                    cookie_checks=self.bookies.cookie_checks(ensemble),
                    properties=properties,
                )
                break
            except EnsembleOutdated as error:
                await self.bookies.reread_cookies(error.bookie_ids)
        writer = LedgerWriter(self, made, lambda: self._writers.pop(made.ledger_id, None), explicit_lac=explicit_lac)
        self._writers[made.ledger_id] = writer
        return made, writer

    async def wait_for_bookies(self, striping: Striping, at_most_s: float = math.inf) -> bool:
        """Return True when there may be bookies enough for `create` to succeed, False after `at_most_s`.

        Raises `ClientClosed`.
        """
        return await self._choice.wait(striping, at_most_s)

    async def open(self, ledger_id: int) -> LedgerReader:
        """A reader, of a ledger that may still be written: up to what is confirmed.

        Raises `NoSuchLedger` and `LedgerDeleted`. That no bookie answers is met by the reads.
        """
        return await LedgerReader.open(self, ledger_id)

    async def recover(self, ledger_id: int) -> LedgerMetadata:
        """Closes the ledger, if it is not closed, and thereby keeps its writer from adding anything more.

        Raises `RecoveryUndecided` where too few bookies could say what the ledger holds, `NoSuchLedger` and
        `LedgerDeleted`. It may be called again, and by anybody.
        """
        return await recover(self, ledger_id)

    async def open_with_recovery(self, ledger_id: int) -> LedgerReader:
        """A reader of the ledger, closed. Raises what `recover` raises."""
        return LedgerReader(self, ledger_id, await self.recover(ledger_id))

    async def delete(self, ledger_id: int) -> None:
        """Makes the ledger a tombstone; bookies drop their entries by and by, and the last of them its node.

        No error if it is a tombstone already; `NoSuchLedger` when that has gone too. `OutcomeNotKnown`: it is deleted
        or not; ask again.
        """
        await self.ledgers.change_metadata(ledger_id, ledger_metadata.tombstone)
