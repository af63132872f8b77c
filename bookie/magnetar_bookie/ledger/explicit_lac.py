"""A silent writer's LAC, told to the bookies.

Records carry the LAC of the moment they were made, so the bookies always know of one entry less than has completed. A
reader that tails would wait for the last one until the next is added. So when nothing is pending for a while, and the
LAC is above what the last record said, the writer sends it by itself to the ensemble, and again to those that it did
not reach, until all have it or something is added.

One timer runs per silent writer, none while it is busy: an add only moves the moment since which the writer is silent.
"""

from __future__ import annotations

import asyncio
from typing import Final

from magnetar_bookie.errors import LedgerFenced
from magnetar_bookie.ledger.context import LedgerContext
from magnetar_bookie.ledger.replicated_adds import ReplicatedAdds
from magnetar_bookie.read.read_answer import format_status
from magnetar_bookie.read.record import NO_ENTRY
from magnetar_protos.ledger_pb2 import ConfirmAnswer, ConfirmRequest, Status
from magnetar_wire.clock import Timer
from magnetar_wire.transport import TransportError

__all__ = ["ExplicitLac"]

_LONGEST_PAUSE_S: Final = 10.0


class ExplicitLac:
    def __init__(
        self, client: LedgerContext, ledger_id: int, master_key: bytes, adds: ReplicatedAdds, interval_s: float
    ) -> None:
        """`interval_s`: 0: nothing is ever sent."""
        self._client = client
        self._ledger_id = ledger_id
        self._master_key = master_key
        self._adds = adds
        self._interval_s = interval_s
        # What the last record said, or each bookie that has answered since.
        self._told = NO_ENTRY
        self._told_to: dict[str, int] = {}
        self._idle_since = 0.0
        self._pause_s = self._interval_s
        self._timer: Timer | None = None
        self._telling: asyncio.Task[None] | None = None
        self._stopped = False

    def told(self, last_add_confirmed: int) -> None:
        """A record leaves that says this."""
        self._told = last_add_confirmed
        self._pause_s = self._interval_s

    def idle(self) -> None:
        """Nothing is pending any more."""
        self._idle_since = self._client.clock.monotonic()
        if self._timer is None and self._telling is None:
            self._again_in(self._interval_s)

    def stop(self) -> None:
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
        if self._telling is not None:
            self._telling.cancel()

    def _again_in(self, seconds: float) -> None:
        if not self._stopped and self._interval_s > 0:
            self._timer = self._client.clock.call_later(seconds, self._due)

    def _due(self) -> None:
        self._timer = None
        if self._adds.pending_entries or self._adds.failed is not None or not self._untold():
            return  # what completes next begins anew
        left_s = self._idle_since + self._interval_s - self._client.clock.monotonic()
        if left_s > 1e-9:
            self._again_in(left_s)
        else:
            self._telling = self._client.bookies.spawn(self._tell())

    def _untold(self) -> list[str]:
        last = self._adds.last_add_confirmed
        if last <= self._told:
            return []
        return [bookie for bookie in self._adds.fragment.bookies if self._told_to.get(bookie, NO_ENTRY) < last]

    async def _tell(self) -> None:
        last = self._adds.last_add_confirmed
        await asyncio.gather(*(self._tell_one(bookie_id, last) for bookie_id in self._untold()))
        self._telling = None
        if self._adds.last_add_confirmed != last:
            self._pause_s = self._interval_s
        elif self._untold():
            self._pause_s = min(self._pause_s * 2, _LONGEST_PAUSE_S)
        if self._untold() and not self._adds.pending_entries:
            self._again_in(self._pause_s)

    async def _tell_one(self, bookie_id: str, last: int) -> None:
        request = ConfirmRequest(ledger_id=self._ledger_id, master_key=self._master_key, last_add_confirmed=last)
        try:
            answer = await self._client.bookies.call(
                bookie_id, "confirm", request, ConfirmAnswer, timeout_s=self._client.settings.add_entry_timeout_seconds
            )
        except TransportError:
            return
        if answer.status in (Status.FENCED, Status.DELETED):
            said = f"bookie {bookie_id} answered {format_status(answer.status)}"
            self._adds.lose(LedgerFenced(f"this writer has lost ledger {self._ledger_id} to another one: {said}"))
        # Whoever refuses would refuse again: the next LAC is soon enough.
        self._told_to[bookie_id] = last
