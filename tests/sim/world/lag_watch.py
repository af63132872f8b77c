"""Watches what a process sends to bookies that are over their lag bound (66).

A ledger is notified if it has unanswered entries there when the bound is passed, or as soon as it sends some. From then
on it sends no new entry. Pending entries may be resent to a bookie that joins the ensemble. The notification takes some
turns of the process' event loop, in which entries are still added.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from magnetar_bookie.client.add_channel import AddChannel
from magnetar_bookie.client.ledger_client import LedgerClient
from tests.sim.invariants import Checker

__all__ = ["watch_lag"]

_TURNS: Final = 4


class _WatchedChannel:
    """Stands in the place of the channel's `send`."""

    def __init__(self, bookie_id: str, channel: AddChannel, bound_bytes: int, checker: Checker) -> None:
        self.send = channel.send
        self._bookie_id = bookie_id
        self._channel = channel
        self._bound_bytes = bound_bytes
        self._checker = checker
        # The ledgers that have been notified since the bound was passed; None: it is not passed.
        self._notified: dict[int, None] | None = None

    def __call__(
        self, ledger_id: int, master_key: bytes, first: int, records: Sequence[bytes], *, recovery: bool
    ) -> None:
        # Only this call makes it more. So each time at which it was less shows in the next call.
        if self._channel.unanswered_bytes <= self._bound_bytes:
            self._notified = None
        if self._notified is not None and ledger_id in self._notified:
            self._checker.sent_to_lagging(self._bookie_id, ledger_id, first + len(records) - 1)
        self.send(ledger_id, master_key, first, records, recovery=recovery)
        if self._channel.unanswered_bytes > self._bound_bytes:
            if self._notified is None:
                self._notified = {}
                self._pass_turn(self._notified, self._channel.unanswered_ledgers, _TURNS)
            else:
                self._pass_turn(self._notified, [ledger_id], _TURNS)

    def _pass_turn(self, notified: dict[int, None], ledger_ids: Sequence[int], turns: int) -> None:
        if turns:
            asyncio.get_running_loop().call_soon(self._pass_turn, notified, ledger_ids, turns - 1)
        else:
            notified.update(dict.fromkeys(ledger_ids))


def watch_lag(client: LedgerClient, checker: Checker) -> None:
    """Watch the channels of adds that the client has by now."""
    for bookie_id, channel in client.bookies.add_channels().items():
        if not isinstance(channel.send, _WatchedChannel):
            watched = _WatchedChannel(bookie_id, channel, client.options.lag_bound_bytes, checker)
            channel.send = watched  # type: ignore[method-assign]
