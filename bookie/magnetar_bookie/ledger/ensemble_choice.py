"""Chooses the ensemble of a new ledger, or waits until enough bookies are available.

A new ledger gets up to an ensemble of the bookies that are registered and writable, and at least an ack quorum. Bookies
in quarantine are chosen only if there are too few others and they answer a request. An answer proves that the process
can be reached, not that its disk stores entries; so the owner of a log pauses before it replaces ledgers that fail
soon. With fewer bookies than an ack quorum no ledger can be created, and publishers wait. The error lists the bookies
of the cluster and why each is not available.
"""

from __future__ import annotations

import asyncio
from typing import Final

from magnetar_bookie import paths
from magnetar_bookie.errors import ClientClosed, NotEnoughBookies
from magnetar_bookie.ledger.context import LedgerContext
from magnetar_bookie.ledger.ensemble_rules import choose_ensemble
from magnetar_bookie.read.striping import Striping
from magnetar_metadata.errors import Unavailable
from magnetar_protos.ledger_pb2 import LastAddConfirmedAnswer, LastAddConfirmedRequest
from magnetar_wire.transport import Rejected, TransportError

__all__ = ["EnsembleChoice"]

# Interval at which bookies in quarantine are called again while a caller waits.
_RETRY_QUARANTINED_S: Final = 1.0


class EnsembleChoice:
    """Chooses ensembles for one ledger client."""

    def __init__(self, client: LedgerContext) -> None:
        self._client = client

    async def choose(self, striping: Striping) -> list[str]:
        """Return the bookies of a new ledger. Raises `NotEnoughBookies`."""
        ensemble = await self._find_ensemble(striping)
        if len(ensemble) < striping.ack_quorum:
            raise await self._describe_shortage(striping)
        return ensemble

    async def wait(self, striping: Striping, at_most_s: float) -> bool:
        """Return True when `choose` would find an ack quorum, False after `at_most_s`. Raises `ClientClosed`."""
        bookies, clock = self._client.bookies, self._client.clock
        deadline = clock.monotonic() + at_most_s
        while True:
            if bookies.is_closed:
                raise ClientClosed("the ledger client was closed while it waited for bookies")
            changed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

            def on_change(changed: asyncio.Future[None] = changed) -> None:
                if not changed.done():
                    changed.set_result(None)

            remove_listener = bookies.add_listener(on_change)
            timer = clock.call_later(max(0.0, min(_RETRY_QUARANTINED_S, deadline - clock.monotonic())), on_change)
            try:
                if len(await self._find_ensemble(striping)) >= striping.ack_quorum:
                    return True
                if clock.monotonic() >= deadline:
                    return False
                await changed
            finally:
                timer.cancel()
                remove_listener()

    async def _find_ensemble(self, striping: Striping) -> list[str]:
        """Choose an ensemble, which may be too small."""
        client = self._client
        ensemble = choose_ensemble(striping.ensemble_size, client.bookies.writable(), client.randomness)
        if len(ensemble) < striping.ack_quorum and client.bookies.quarantined():
            # A failure of our own network puts all bookies into quarantine.
            await asyncio.gather(*(self._call_quarantined(bookie_id) for bookie_id in client.bookies.quarantined()))
            ensemble = choose_ensemble(striping.ensemble_size, client.bookies.writable(), client.randomness)
        return ensemble

    async def _call_quarantined(self, bookie_id: str) -> None:
        """End the quarantine of a bookie that answers."""
        request = LastAddConfirmedRequest(ledger_id=0, above=-1)
        bookies, timeout_s = self._client.bookies, self._client.settings.read_entry_timeout_seconds
        try:
            await bookies.call(bookie_id, "last_add_confirmed", request, LastAddConfirmedAnswer, timeout_s=timeout_s)
        except Rejected:
            pass  # an answer, too
        except TransportError:
            return
        bookies.end_quarantine(bookie_id)

    async def _describe_shortage(self, striping: Striping) -> NotEnoughBookies:
        bookies = self._client.bookies
        try:
            members = await self._client.ledgers.store.children(paths.COOKIES)
        except Unavailable:
            members = []  # only the known bookies are listed
        writable = bookies.writable()
        reasons = {
            bookie_id: bookies.explain_unavailable(bookie_id)
            for bookie_id in sorted({*members, *bookies.known_ids()})
            if bookie_id not in writable
        }
        missing = "; ".join(f"{bookie_id} {reason}" for bookie_id, reason in reasons.items())
        return NotEnoughBookies(
            f"a new ledger needs {striping.ack_quorum} bookies, but {len(writable)} of {len(bookies.registered())} "
            "registered ones accept entries: start more bookies, end their read-only mode, or use a smaller ack quorum"
            + (f" ({missing})" if missing else ""),
            reasons,
        )
