"""Ledgers that no owner ever claimed: list and delete them.

Intent and ledger are created in one transaction. The owner claims the ledger by deleting the intent at version 0, in
the transaction that records the ledger. Deletion has three steps. Each is safe to repeat, to do late, or to leave out:

1. `sweeping` is set in the intent, by compare-and-set. From then on the intent has version 1 or higher, and never 0
   again, since no id is used twice. So every claim is refused, in flight or later. If the claim was first, there is no
   intent, and the ledger is not touched. If the outcome of the compare-and-set stays unknown, the next round reads it.
2. The ledger becomes a tombstone.
3. The intent is deleted.

An intent or ledger that can't be decoded is left for the next round, and delays no other.

If the transaction that creates intent and ledger is delayed, and executed much later, the intent's grace period begins
then. An intent without a ledger is one whose step 3 is missing; its ledger will not be created any more.

The grace period counts from when this auditor first saw the intent, so no clocks are compared.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass

from magnetar_bookie import paths
from magnetar_bookie.client.foreign_nodes import decode_node
from magnetar_bookie.client.ledger_client import LedgerClient
from magnetar_bookie.core.ledger_metadata import tombstone
from magnetar_bookie.errors import LedgerError, NoSuchLedger, OutcomeNotKnown
from magnetar_metadata import compare_and_set
from magnetar_metadata.compare_and_set import DELETE, LEAVE, UpdateAction
from magnetar_metadata.errors import ForeignValue, OutcomeUnknown
from magnetar_protos.ledger_pb2 import LedgerIntent

__all__ = ["UnclaimedLedger", "UnclaimedLedgerDeleter", "list_unclaimed_ledgers"]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class UnclaimedLedger:
    """A ledger that no owner has claimed yet, for commands."""

    ledger_id: int
    purpose: str
    created_ms: int
    # It is being deleted, and can't be claimed any more.
    sweeping: bool


async def list_unclaimed_ledgers(client: LedgerClient) -> list[UnclaimedLedger]:
    """Return all of them, the oldest ledger first."""
    await client.ledgers.store.sync()
    found = []
    for ledger_id in sorted(await client.ledgers.ids_under(paths.INTENTS)):
        try:
            stored = await compare_and_set.read(client.ledgers.store, paths.intent(ledger_id))
            if stored is None:
                continue  # claimed or deleted in the meantime
            intent = decode_node(LedgerIntent, paths.intent(ledger_id), stored.payload)
        except ForeignValue as error:
            client.ledgers.foreign.pass_over(paths.intent(ledger_id), error)
            continue
        found.append(UnclaimedLedger(ledger_id, intent.purpose, intent.created_ms, intent.sweeping))
    return found


class UnclaimedLedgerDeleter:
    def __init__(self, client: LedgerClient, grace_s: float) -> None:
        self._client = client
        self._store = client.ledgers.store
        self._grace_s = grace_s
        # All intents, and when each was first seen.
        self._seen_at: dict[int, float] = {}
        # Those that could not be decoded in the last round, or whose ledger could not.
        self._unreadable: dict[int, None] = {}

    async def delete_overdue(self, is_term_valid: Callable[[], bool]) -> None:
        """Delete the ledgers whose grace period is over, as long as `is_term_valid`."""
        ledger_ids = await self._client.ledgers.ids_under(paths.INTENTS)
        now = self._client.clock.monotonic()
        self._seen_at = {one: self._seen_at.get(one, now) for one in ledger_ids}
        self._unreadable = {}
        for ledger_id, seen_at in list(self._seen_at.items()):
            if seen_at + self._grace_s <= now and is_term_valid():
                try:
                    await self._delete(ledger_id)
                except (OutcomeUnknown, OutcomeNotKnown) as error:
                    _log.info("The deletion of unclaimed ledger %s is retried later: %s", ledger_id, error)
                except (ForeignValue, LedgerError) as error:
                    self._client.ledgers.foreign.pass_over(paths.intent(ledger_id), error)
                    self._unreadable[ledger_id] = None

    def next_due(self) -> float | None:
        """Return when the next grace period ends."""
        seen_at = [seen_at for one, seen_at in self._seen_at.items() if one not in self._unreadable]
        return min(seen_at) + self._grace_s if seen_at else None

    async def _delete(self, ledger_id: int) -> None:
        if not await self._prevent_claim(ledger_id):
            return  # claimed
        with contextlib.suppress(NoSuchLedger):  # the tombstone's holders have dropped the ledger already
            await self._client.ledgers.change(ledger_id, tombstone)
        await self._change(ledger_id, lambda payload: LEAVE if payload is None else DELETE)
        _log.info("Deleted ledger %s, which was never claimed", ledger_id)

    async def _prevent_claim(self, ledger_id: int) -> bool:
        """Set `sweeping` in the intent. Return False if there is no intent."""

        def update(payload: bytes | None) -> bytes | UpdateAction:
            if payload is None:
                return LEAVE
            intent = decode_node(LedgerIntent, paths.intent(ledger_id), payload)
            if intent.sweeping:
                return LEAVE
            intent.sweeping = True
            return intent.SerializeToString(deterministic=True)

        return await self._change(ledger_id, update) is not None

    async def _change(self, ledger_id: int, update: compare_and_set.Update) -> compare_and_set.StoredValue | None:
        clock, randomness = self._client.clock, self._client.randomness
        return await compare_and_set.change(
            self._store, paths.intent(ledger_id), update, clock=clock, randomness=randomness
        )
