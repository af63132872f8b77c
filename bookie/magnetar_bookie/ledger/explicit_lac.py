"""Sends the LAC of a writer that adds nothing to its bookies (BookKeeper's explicit LAC).

A record carries the LAC of the moment at which it was encoded, so the bookies never know of the last completed entry,
and a tailing reader would wait for it until the next add. So when nothing has been pending for some time, and the LAC
is above the one in the last record, the writer sends the LAC to the ensemble. It is resent to bookies that it did not
reach, until all have it or an entry is added.

An idle writer has one timer, a busy one has none: a completed add only moves the time since which the writer is idle.
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
    """The explicit LAC of one writer."""

    __slots__ = (
        "_adds",
        "_client",
        "_idle_since",
        "_interval_s",
        "_is_stopped",
        "_ledger_id",
        "_master_key",
        "_pause_s",
        "_sending",
        "_sent_lacs",
        "_timer",
    )

    def __init__(
        self, client: LedgerContext, ledger_id: int, master_key: bytes, adds: ReplicatedAdds, interval_s: float
    ) -> None:
        """`interval_s`: idle time after which the LAC is sent; 0: it is never sent."""
        self._client = client
        self._ledger_id = ledger_id
        self._master_key = master_key
        self._adds = adds
        self._interval_s = interval_s
        # The LAC that each bookie has been sent since the last record, which has an LAC, too.
        self._sent_lacs: dict[str, int] = {}
        self._idle_since = 0.0
        self._pause_s = self._interval_s
        self._timer: Timer | None = None
        self._sending: asyncio.Task[None] | None = None
        self._is_stopped = False

    def on_idle(self) -> None:
        """Note that all adds have completed."""
        self._idle_since = self._client.clock.monotonic()
        self._pause_s = self._interval_s
        if self._timer is None and self._sending is None:
            self._check_in(self._interval_s)

    def stop(self) -> None:
        self._is_stopped = True
        if self._timer is not None:
            self._timer.cancel()
        if self._sending is not None:
            self._sending.cancel()

    def _check_in(self, seconds: float) -> None:
        if not self._is_stopped and self._interval_s > 0:
            self._timer = self._client.clock.call_later(seconds, self._check)

    def _check(self) -> None:
        self._timer = None
        if self._adds.pending_entries or self._adds.rules.failure is not None or not self._bookies_without_lac():
            return  # the next completed add starts the timer
        left_s = self._idle_since + self._interval_s - self._client.clock.monotonic()
        if left_s > 1e-9:
            self._check_in(left_s)
        else:
            self._sending = self._client.bookies.spawn(self._send())

    def _bookies_without_lac(self) -> list[str]:
        rules = self._adds.rules
        last = rules.last_add_confirmed
        if last <= self._adds.recorded_lac:
            return []
        return [bookie for bookie in rules.fragment.bookies if self._sent_lacs.get(bookie, NO_ENTRY) < last]

    async def _send(self) -> None:
        rules = self._adds.rules
        last = rules.last_add_confirmed
        await asyncio.gather(*(self._send_to(bookie_id, last) for bookie_id in self._bookies_without_lac()))
        self._sending = None
        if rules.last_add_confirmed != last:
            self._pause_s = self._interval_s
        elif self._bookies_without_lac():
            self._pause_s = min(self._pause_s * 2, _LONGEST_PAUSE_S)
        if self._bookies_without_lac() and not self._adds.pending_entries:
            self._check_in(self._pause_s)

    async def _send_to(self, bookie_id: str, last: int) -> None:
        request = ConfirmRequest(ledger_id=self._ledger_id, master_key=self._master_key, last_add_confirmed=last)
        try:
            answer = await self._client.bookies.call(
                bookie_id, "confirm", request, ConfirmAnswer, timeout_s=self._client.settings.add_entry_timeout_seconds
            )
        except TransportError:
            return
        if answer.status in (Status.FENCED, Status.DELETED):
            reason = f"bookie {bookie_id} answered {format_status(answer.status)}"
            self._adds.fail(LedgerFenced(f"this writer has lost ledger {self._ledger_id} to another one: {reason}"))
        # Other refusals would be repeated: the next LAC is soon enough.
        self._sent_lacs[bookie_id] = last
