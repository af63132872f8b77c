"""On which bookies a new ledger is made; who is missing where there are too few; and waiting for them.

A new ledger takes those that are alive and may be written to, an ensemble at most and an ack quorum at least. One that
failed lately is passed over, unless there are too few without it: then it is asked whether it is there. Its answer says
that the process can be reached, not that its disk takes entries; so the owner of a log pauses before it replaces
ledgers that fail one soon after another. Below an ack quorum nothing can be made, and publishers wait. The error
then lists the cluster's bookies, and why each of them is not chosen: it is not registered, is read-only, is leaving, or
failed and does not answer.
"""

from __future__ import annotations

import asyncio
from typing import Final

from magnetar_bookie import paths
from magnetar_bookie.errors import ClientClosed, NotEnoughBookies
from magnetar_bookie.ledger.context import LedgerContext
from magnetar_bookie.read.striping import Striping
from magnetar_metadata.errors import Unavailable
from magnetar_protos.ledger_pb2 import LastAddConfirmedAnswer, LastAddConfirmedRequest
from magnetar_wire.transport import Rejected, TransportError

__all__ = ["EnsembleChoice"]

# Whoever waits asks those in quarantine again after so long.
_ASK_AGAIN_S: Final = 1.0


class EnsembleChoice:
    def __init__(self, client: LedgerContext) -> None:
        self._client = client

    async def choose(self, striping: Striping) -> list[str]:
        """The bookies of a new ledger. Raises `NotEnoughBookies`, with the reason for each that is missing."""
        ensemble = await self._available(striping)
        if len(ensemble) < striping.ack_quorum:
            raise await self._too_few(striping)
        return ensemble

    async def wait(self, striping: Striping, at_most_s: float) -> bool:
        """Return True when `choose` would find an ack quorum, False after `at_most_s`. Raises `ClientClosed`."""
        bookies, clock = self._client.bookies, self._client.clock
        deadline = clock.monotonic() + at_most_s
        while True:
            if bookies.closed:
                raise ClientClosed("the ledger client was closed while it waited for bookies")
            changed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

            def tell(changed: asyncio.Future[None] = changed) -> None:
                if not changed.done():
                    changed.set_result(None)

            end_listening = bookies.listen(tell)
            timer = clock.call_later(max(0.0, min(_ASK_AGAIN_S, deadline - clock.monotonic())), tell)
            try:
                if len(await self._available(striping)) >= striping.ack_quorum:
                    return True
                if clock.monotonic() >= deadline:
                    return False
                await changed
            finally:
                timer.cancel()
                end_listening()

    async def _available(self, striping: Striping) -> list[str]:
        ensemble = self._new_ensemble(striping)
        if len(ensemble) < striping.ack_quorum and self._client.bookies.quarantined():
            await self._ask_those_in_quarantine()
            ensemble = self._new_ensemble(striping)
        return ensemble

    def _new_ensemble(self, striping: Striping) -> list[str]:
        client = self._client
        return client.placement.new_ensemble(striping.ensemble_size, client.bookies.writable(), client.randomness)

    async def _ask_those_in_quarantine(self) -> None:
        """A trouble of our own network puts all bookies into quarantine; those that answer now need not stay."""
        bookies = self._client.bookies
        await asyncio.gather(*(self._forgive_if_there(bookie_id) for bookie_id in bookies.quarantined()))

    async def _forgive_if_there(self, bookie_id: str) -> None:
        request = LastAddConfirmedRequest(ledger_id=0, above=-1)
        bookies, timeout_s = self._client.bookies, self._client.settings.read_entry_timeout_seconds
        try:
            await bookies.call(bookie_id, "last_add_confirmed", request, LastAddConfirmedAnswer, timeout_s=timeout_s)
        except Rejected:
            pass  # an answer, whatever it says
        except TransportError:
            return
        bookies.end_quarantine(bookie_id)

    async def _too_few(self, striping: Striping) -> NotEnoughBookies:
        bookies = self._client.bookies
        try:
            members = await self._client.ledgers.store.children(paths.COOKIES)
        except Unavailable:
            members = []  # those that were seen must do
        writable = bookies.writable()
        reasons = {
            bookie_id: bookies.explain_unavailable(bookie_id)
            for bookie_id in sorted({*members, *bookies.seen()})
            if bookie_id not in writable
        }
        missing = "; ".join(f"{bookie_id} {reason}" for bookie_id, reason in reasons.items())
        return NotEnoughBookies(
            f"a new ledger needs {striping.ack_quorum} bookies, but {len(writable)} of "
            f"{len(bookies.alive())} registered ones accept entries: start more bookies, end their read-only mode, or "
            "use a smaller ack quorum" + (f" ({missing})" if missing else ""),
            reasons,
        )
