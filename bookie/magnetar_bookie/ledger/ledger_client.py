"""The ledger client of a process: creates, opens, recovers and deletes ledgers.

Each method documents the `LedgerError`s that it raises. Methods that use the metadata store also raise `SessionLost`
when the session is over, `Unavailable` if the store did not answer for long, in which case nothing was done,
`StoreFull`, and `ForeignValue` or a plain `LedgerError` if a node can't be decoded.
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
from magnetar_bookie.ledger.recovery import recover_ledger
from magnetar_bookie.read.striping import Striping
from magnetar_bookie.settings.ledger_client import LedgerClientSettings
from magnetar_metadata.store import MetadataStore
from magnetar_wire.clock import Clock
from magnetar_wire.randomness import Randomness
from magnetar_wire.transport import Transport

__all__ = ["LedgerClient"]


class LedgerClient(LedgerContext):
    """The ledger client of one metadata session (context.py)."""

    def __init__(
        self,
        metadata: MetadataStore,
        transport: Transport,
        clock: Clock,
        randomness: Randomness,
        settings: LedgerClientSettings | None = None,
    ) -> None:
        super().__init__(metadata, transport, clock, randomness, settings)
        # The writers that are neither closed nor abandoned, oldest first.
        self._writers: dict[int, LedgerWriter] = {}
        self._choice = EnsembleChoice(self)

    async def start(self) -> None:
        """Read the bookies. Raises `ClientClosed` if the client is closed in the meantime."""
        await self.bookies.start()

    async def close(self) -> None:
        """Close the client, and abandon its writers.

        Their pending adds fail with `WriterClosed`, and a close in flight with `CloseLost` or `OutcomeNotKnown`. Reads
        reach no bookie any more, and tails end with `ClientClosed`.
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
        """Create a ledger. It is deleted unless its owner claims it in time (`LedgerMetadataStore.claim_ledger`).

        `explicit_lac`: whether the writer sends its LAC when it is idle; not needed if nobody reads the ledger before
        it is closed or recovered. If fewer bookies than an ensemble, but an ack quorum, are available, the ledger is
        created degraded. If there are fewer, this raises `NotEnoughBookies` with the reason for each bookie: call
        `wait_for_bookies` and try again. Raises `ValueTooLarge` if the properties don't fit into a node.
        """
        while True:
            ensemble = await self._choice.choose(striping)
            size = len(ensemble)
            actual = Striping(size, min(striping.write_quorum, size), striping.ack_quorum)
            try:
                new_ledger = await self.ledgers.create_ledger(
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
        ledger_id = new_ledger.ledger_id
        writer = LedgerWriter(self, new_ledger, lambda: self._writers.pop(ledger_id, None), explicit_lac=explicit_lac)
        self._writers[ledger_id] = writer
        return new_ledger, writer

    async def wait_for_bookies(self, striping: Striping, at_most_s: float = math.inf) -> bool:
        """Wait until enough bookies for `create` may be available. Return False after `at_most_s`.

        Raises `ClientClosed`.
        """
        return await self._choice.wait(striping, at_most_s)

    async def open(self, ledger_id: int) -> LedgerReader:
        """Open a reader of a ledger that may still be written. It reads up to the LAC.

        Raises `NoSuchLedger` and `LedgerDeleted`. If no bookie answers, only the reads fail.
        """
        return await LedgerReader.open(self, ledger_id)

    async def recover(self, ledger_id: int) -> LedgerMetadata:
        """Close the ledger if it is not closed. Its writer can add nothing more after that.

        Raises `RecoveryUndecided` if too few bookies answered, `NoSuchLedger` and `LedgerDeleted`. The call may be
        repeated, and several clients may recover a ledger at a time.
        """
        return await recover_ledger(self, ledger_id)

    async def open_with_recovery(self, ledger_id: int) -> LedgerReader:
        """Recover the ledger, and open a reader of it. Raises what `recover` raises."""
        return LedgerReader(self, ledger_id, await self.recover(ledger_id))

    async def delete(self, ledger_id: int) -> None:
        """Make the ledger a tombstone. Its bookies drop their entries later, and the last of them its node.

        Nothing is done if it is a tombstone already. Raises `NoSuchLedger`, and `OutcomeNotKnown`: try again.
        """
        await self.ledgers.change_metadata(ledger_id, ledger_metadata.make_tombstone)
