"""Check what a process sends to bookies against the lag bound (66).

A ledger is notified if it has unanswered entries there when the bound is passed, or as soon as it sends some. From then
on it sends no new entry. Pending entries may be resent to a bookie that joins the ensemble. The notification takes some
turns of the process' event loop, in which entries are still added.

The watch sees the unanswered entries of a ledger from outside: it stands between the ledgers and the channels of their
adds, instead of `Bookies.adds`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from magnetar_bookie.ledger.add_channel import AddCallbacks, AddChannel
from magnetar_bookie.ledger.ledger_client import LedgerClient
from tests.sim.invariants import Checker

__all__ = ["AddsWatch"]

_TURNS: Final = 4


class AddsWatch:
    """Watches the adds of a client; made before the client writes."""

    def __init__(self, client: LedgerClient, checker: Checker) -> None:
        self._client = client
        self._checker = checker
        self._adds = client.bookies.get_add_channel
        self._channels: dict[str, _WatchedChannel] = {}
        client.bookies.get_add_channel = self._watched_adds  # type: ignore[method-assign]

    def _watched_adds(self, bookie_id: str, *, recovery: bool = False) -> AddChannel:
        channel = self._adds(bookie_id, recovery=recovery)
        if not recovery and bookie_id not in self._channels:
            bound_bytes = self._client.settings.lag_bound_bytes
            self._channels[bookie_id] = _WatchedChannel(bookie_id, channel, bound_bytes, self._checker)
        return channel

    def check_unanswered(self, max_pending: int) -> None:
        """Check the unanswered bytes of each bookie. `max_pending`: entries of a ledger."""
        ledgers = {ledger_id for channel in self._channels.values() for ledger_id in channel.attached}
        for bookie_id, channel in self._channels.items():
            self._checker.unanswered(
                bookie_id, channel.unanswered_bytes, self._client.settings.lag_bound_bytes, len(ledgers), max_pending
            )


class _WatchedChannel:
    """Replaces the channel's methods."""

    def __init__(self, bookie_id: str, channel: AddChannel, bound_bytes: int, checker: Checker) -> None:
        self._bookie_id = bookie_id
        self._channel = channel
        self._bound_bytes = bound_bytes
        self._checker = checker
        # By ledger and the callbacks that it gave.
        self._callbacks: dict[tuple[int, AddCallbacks], _WatchedCallbacks] = {}
        # By ledger: the entries that were sent and are not answered.
        self._unanswered: dict[int, set[int]] = {}
        # The ledgers that have been notified since the bound was passed; None: it is not passed.
        self._notified: dict[int, None] | None = None
        self._send, self._attach, self._abandon = channel.send, channel.attach, channel.abandon
        channel.send = self._watched_send  # type: ignore[method-assign]
        channel.attach = self._watched_attach  # type: ignore[method-assign]
        channel.abandon = self._watched_abandon  # type: ignore[method-assign]

    @property
    def unanswered_bytes(self) -> int:
        return self._channel.unanswered_bytes

    @property
    def attached(self) -> list[int]:
        """The ledgers that hear of the bookie."""
        return [ledger_id for ledger_id, _ in self._callbacks]

    def on_answer(self, ledger_id: int, entry_ids: range) -> None:
        entries = self._unanswered.get(ledger_id, set())
        entries.difference_update(entry_ids)
        if not entries:
            self.forget(ledger_id)

    def forget(self, ledger_id: int) -> None:
        self._unanswered.pop(ledger_id, None)

    def _watched_send(self, ledger_id: int, master_key: bytes, first: int, records: Sequence[bytes]) -> None:
        # Only this call makes it more. So each time at which it was less shows in the next call.
        if self._channel.unanswered_bytes <= self._bound_bytes:
            self._notified = None
        if self._notified is not None and ledger_id in self._notified:
            self._checker.sent_to_lagging(self._bookie_id, ledger_id, first + len(records) - 1)
        self._unanswered.setdefault(ledger_id, set()).update(range(first, first + len(records)))
        self._send(ledger_id, master_key, first, records)
        if self._channel.unanswered_bytes > self._bound_bytes:
            if self._notified is None:
                self._notified = {}
                self._pass_turn(self._notified, list(self._unanswered), _TURNS)
            else:
                self._pass_turn(self._notified, [ledger_id], _TURNS)

    def _watched_attach(self, ledger_id: int, callbacks: AddCallbacks) -> Callable[[], object]:
        watched = self._callbacks[ledger_id, callbacks] = _WatchedCallbacks(self, ledger_id, callbacks)
        detach = self._attach(ledger_id, watched)

        def watched_detach() -> None:
            detach()
            if self._callbacks.get((ledger_id, callbacks)) is watched:
                del self._callbacks[ledger_id, callbacks]
                # A ledger that changes its ensemble attaches again at once, and has missed no answer.
                asyncio.get_running_loop().call_soon(self._forget_detached, ledger_id)

        return watched_detach

    def _watched_abandon(self, ledger_id: int, callbacks: AddCallbacks) -> None:
        self._abandon(ledger_id, self._callbacks.pop((ledger_id, callbacks), callbacks))
        self._forget_detached(ledger_id)

    def _forget_detached(self, ledger_id: int) -> None:
        """Forget what a ledger has sent that does not hear of answers."""
        if ledger_id not in self.attached:
            self.forget(ledger_id)

    def _pass_turn(self, notified: dict[int, None], ledger_ids: Sequence[int], turns: int) -> None:
        if turns:
            asyncio.get_running_loop().call_soon(self._pass_turn, notified, ledger_ids, turns - 1)
        else:
            notified.update(dict.fromkeys(ledger_ids))


@dataclass(eq=False, slots=True)
class _WatchedCallbacks:
    """Note the results of a ledger's entries, and pass them on to the ledger."""

    channel: _WatchedChannel
    ledger_id: int
    callbacks: AddCallbacks

    def on_answer(self, bookie_id: str, first_entry_id: int, count: int, status: int) -> None:
        self.channel.on_answer(self.ledger_id, range(first_entry_id, first_entry_id + count))
        self.callbacks.on_answer(bookie_id, first_entry_id, count, status)

    def on_bookie_failed(self, bookie_id: str, reason: str) -> None:
        self.channel.forget(self.ledger_id)
        self.callbacks.on_bookie_failed(bookie_id, reason)

    def on_bookie_lags(self, bookie_id: str, reason: str) -> None:
        self.callbacks.on_bookie_lags(bookie_id, reason)

    def on_bookie_caught_up(self, bookie_id: str) -> None:
        self.callbacks.on_bookie_caught_up(bookie_id)
