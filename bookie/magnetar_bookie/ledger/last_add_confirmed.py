"""Asks the bookies of an open ledger's last fragment how far it is confirmed, once or until there is more.

Each answer is a true lower bound, so nobody in particular is needed. Asked once, answers from all but Qa - 1 bookies
are enough, as with a fence: what an ack quorum was told, one of them was told. After a short time whatever has come is
enough, as long as anybody has answered. Waiting for more, every bookie is polled for as long as it takes, and those
that fail are tried again: the first to know of more ends it.
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

__all__ = ["ask_last_add_confirmed", "wait_last_add_confirmed"]

_PAUSE_S: Final = 1.0


async def ask_last_add_confirmed(client: LedgerContext, ledger_id: int, metadata: LedgerMetadata) -> int:
    """The highest that is answered now. Raises `Unreadable` if nobody answers."""
    bookies = metadata.last_fragment.bookies
    heard: dict[str, int] = {}
    reasons: dict[str, str] = {}
    late = False
    changed = asyncio.Event()

    async def ask(bookie_id: str) -> None:
        try:
            heard[bookie_id] = await _ask(client, bookie_id, ledger_id, NO_ENTRY, 0)
        except TransportError as error:
            reasons[bookie_id] = str(error)
        changed.set()

    def enough() -> bool:
        answered = len(heard)
        return answered >= metadata.striping.fence_coverage or (late and answered > 0)

    def is_late() -> None:
        nonlocal late
        late = True
        changed.set()

    timer = client.clock.call_later(client.settings.speculative_read_timeout_ms / 1000, is_late)
    try:
        async with OrderedTaskGroup() as tasks:
            for bookie_id in bookies:
                tasks.create_task(ask(bookie_id))
            while not enough() and len(heard) + len(reasons) < len(bookies):
                changed.clear()
                await changed.wait()
            tasks.cancel()
    finally:
        timer.cancel()
    if not heard:
        told = "; ".join(f"{bookie_id}: {reason}" for bookie_id, reason in reasons.items())
        raise Unreadable(f"no bookie reports the LAC of ledger {ledger_id}: {told}", reasons)
    return max(heard.values())


async def wait_last_add_confirmed(
    client: LedgerContext, ledger_id: int, fragment: Fragment, above: int, found: Callable[[int], object], watch: Watch
) -> bool:
    """Waits until the metadata may have changed (True), or a bookie tells `found` of more than `above` (False).

    False as well when the client is closed: nobody will tell any more. Raises `SessionLost`.
    """
    over = asyncio.Event()
    metadata_changed = False
    lost: SessionLost | None = None
    wait_ms = client.settings.long_poll_timeout_ms

    async def poll(bookie_id: str) -> None:
        while True:
            asked_at = client.clock.monotonic()
            try:
                last_add_confirmed = await _ask(client, bookie_id, ledger_id, above, wait_ms)
            except TransportError:
                last_add_confirmed = NO_ENTRY
                if client.bookies.closed:
                    over.set()
                    return
            if last_add_confirmed > above:
                found(last_add_confirmed)
                over.set()
                return
            # Whoever fails, or answers before it is time, is not asked in a loop.
            early_s = wait_ms / 2000 - (client.clock.monotonic() - asked_at)
            if early_s > 0:
                await client.clock.sleep(min(early_s, _PAUSE_S))

    async def follow_metadata() -> None:
        nonlocal metadata_changed, lost
        try:
            await watch.wait()
        except SessionLost as error:
            lost = error
        metadata_changed = True
        over.set()

    async with OrderedTaskGroup() as tasks:
        tasks.create_task(follow_metadata())
        for bookie_id in fragment.bookies:
            tasks.create_task(poll(bookie_id))
        await over.wait()
        tasks.cancel()
    if lost is not None:
        raise lost
    return metadata_changed


async def _ask(client: LedgerContext, bookie_id: str, ledger_id: int, above: int, wait_ms: int) -> int:
    """Raises `_Refused` for an answer that is none."""
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
    """Answered, but not with what was asked."""
