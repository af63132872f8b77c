"""What brokers append to ledgers, as the ledgers' checker wants to know it.

A topic's ledger is listed before anything is added to it. A cursor's is recorded only when its snapshot is durable, so
of entries of those nothing is asserted about lists.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from magnetar_bookie.errors import AddFailed
from magnetar_bookie.ledger.ledger_client import LedgerClient
from magnetar_bookie.ledger.ledger_metadata_store import NewLedger
from magnetar_bookie.ledger.ledger_writer import AppendCallback, LedgerWriter
from magnetar_bookie.read.striping import Striping

if TYPE_CHECKING:
    from tests.sim.service.world import ServiceWorld

__all__ = ["watch_ledgers"]


def watch_ledgers(client: LedgerClient, world: ServiceWorld) -> None:
    create = client.create

    async def watched(
        striping: Striping,
        purpose: str,
        properties: Mapping[str, bytes] | None = None,
        *,
        explicit_lac: bool = True,
    ) -> tuple[NewLedger, LedgerWriter]:
        made, writer = await create(striping, purpose, properties, explicit_lac=explicit_lac)
        _watch(writer, made.ledger_id, world, listed=purpose.startswith("topic"))
        return made, writer

    client.create = watched  # type: ignore[method-assign]


def _watch(writer: LedgerWriter, ledger_id: int, world: ServiceWorld, *, listed: bool) -> None:
    append, checker = writer.append_entries, world.checker

    @lru_cache(maxsize=4)  # the writer joins consecutive adds with the same callback
    def watch(done: AppendCallback) -> AppendCallback:
        def report(result: int | AddFailed, count: int) -> None:
            if isinstance(result, int):
                for entry_id in range(result, result + count):
                    world.count("entries acknowledged")
                    if listed:
                        checker.acked(ledger_id, entry_id)
                    else:
                        checker.acked_unlisted(ledger_id, entry_id)
            done(result, count)

        return report

    def watched(entries: Sequence[bytes], done: AppendCallback) -> int:
        first = append(entries, watch(done))
        for entry_id, entry in enumerate(entries, first):
            checker.appended(ledger_id, entry_id, entry)
        return first

    writer.append_entries = watched  # type: ignore[assignment]
