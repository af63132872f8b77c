"""Reads the LAC of an open ledger from the bookies of its last fragment, once or by long polls.

Each answer is a true lower bound, so any bookie will do. To read once, answers from all but Qa - 1 bookies suffice, as
for a fence: one of them is in every ack quorum. After the speculative timeout any answer suffices. To wait for a higher
LAC, all bookies are polled until one reports it. Bookies that fail are polled again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from magnetar_bookie.errors import Unreadable
from magnetar_bookie.ledger.context import LedgerContext
from magnetar_bookie.ledger.ledger_metadata import LedgerMetadata
from magnetar_bookie.read.read_answer import format_status
from magnetar_bookie.read.record import NO_ENTRY
from magnetar_bookie.read.striping import Fragment
from magnetar_metadata.errors import SessionLost
from magnetar_metadata.store import Watch
from magnetar_protos import ledger_pb2
from magnetar_protos.ledger_pb2 import LastAddConfirmedAnswer, LastAddConfirmedRequest
from magnetar_wire.tasks import OrderedTaskGroup
from magnetar_wire.transport import TransportError

__all__ = ["poll_last_add_confirmed", "read_last_add_confirmed"]

_PAUSE_S: Final = 1.0


async def read_last_add_confirmed(client: LedgerContext, ledger_id: int, metadata: LedgerMetadata) -> int:
    """Return the highest LAC that the bookies report now. Raises `Unreadable` if none answers."""
    bookies = metadata.last_fragment.bookies
    answers: dict[str, int] = {}
    reasons: dict[str, str] = {}
    is_late = False
    changed = asyncio.Event()

    async def read(bookie_id: str) -> None:
        try:
            answers[bookie_id] = await _call(client, bookie_id, ledger_id, NO_ENTRY, 0)
        except TransportError as error:
            reasons[bookie_id] = str(error)
        changed.set()

    def are_enough() -> bool:
        return len(answers) >= metadata.striping.fence_coverage or (is_late and bool(answers))

    def on_timeout() -> None:
        nonlocal is_late
        is_late = True
        changed.set()

    timer = client.clock.call_later(client.settings.speculative_read_timeout_ms / 1000, on_timeout)
    try:
        async with OrderedTaskGroup() as tasks:
            for bookie_id in bookies:
                tasks.create_task(read(bookie_id))
            while not are_enough() and len(answers) + len(reasons) < len(bookies):
                changed.clear()
                await changed.wait()
            tasks.cancel()
    finally:
        timer.cancel()
    if not answers:
        by_bookie = "; ".join(f"{bookie_id}: {reason}" for bookie_id, reason in reasons.items())
        raise Unreadable(f"no bookie reports the LAC of ledger {ledger_id}: {by_bookie}", reasons)
    return max(answers.values())


async def poll_last_add_confirmed(
    client: LedgerContext,
    ledger_id: int,
    fragment: Fragment,
    above: int,
    on_found: Callable[[int], object],
    watch: Watch,
) -> bool:
    """Wait until the metadata may have changed, and return True; or until a bookie reports an LAC higher than `above`,
    call `on_found` with it, and return False.

    Returns False also when the client is closed. Raises `SessionLost`.
    """
    is_over = asyncio.Event()
    has_metadata_changed = False
    lost: SessionLost | None = None
    wait_ms = client.settings.long_poll_timeout_ms

    async def poll(bookie_id: str) -> None:
        while True:
            called_at = client.clock.monotonic()
            try:
                last_add_confirmed = await _call(client, bookie_id, ledger_id, above, wait_ms)
            except TransportError:
                last_add_confirmed = NO_ENTRY
                if client.bookies.is_closed:
                    is_over.set()
                    return
            if last_add_confirmed > above:
                on_found(last_add_confirmed)
                is_over.set()
                return
            # A bookie that fails, or answers too early, must not be called in a busy loop.
            early_s = wait_ms / 2000 - (client.clock.monotonic() - called_at)
            if early_s > 0:
                await client.clock.sleep(min(early_s, _PAUSE_S))

    async def follow_metadata() -> None:
        nonlocal has_metadata_changed, lost
        try:
            await watch.wait()
        except SessionLost as error:
            lost = error
        has_metadata_changed = True
        is_over.set()

    async with OrderedTaskGroup() as tasks:
        tasks.create_task(follow_metadata())
        for bookie_id in fragment.bookies:
            tasks.create_task(poll(bookie_id))
        await is_over.wait()
        tasks.cancel()
    if lost is not None:
        raise lost
    return has_metadata_changed


async def _call(client: LedgerContext, bookie_id: str, ledger_id: int, above: int, wait_ms: int) -> int:
    """Return the LAC of one bookie. Raises `TransportError`."""
    answer = await client.bookies.call(
        bookie_id,
        "last_add_confirmed",
        LastAddConfirmedRequest(ledger_id=ledger_id, above=above, wait_ms=wait_ms),
        LastAddConfirmedAnswer,
        timeout_s=client.settings.read_entry_timeout_seconds + wait_ms / 1000,
    )
    if answer.status != ledger_pb2.OK:
        raise _Refused(f"it answered {format_status(answer.status)}")
    return answer.last_add_confirmed


class _Refused(TransportError):
    """The bookie answered with another status than OK."""
