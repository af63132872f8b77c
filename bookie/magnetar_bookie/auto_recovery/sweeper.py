"""Deleting ledgers that nobody ever claimed.

Intent and ledger are made in one transaction; the owner claims by deleting the intent at version 0 in the transaction
that records the ledger. The sweeper goes in three steps, each safe to repeat, to do late, or never to come to:

1. `sweeping` is set in the intent by compare-and-set. It is at version 1 or above from then on and never at 0 again,
   since no id is used twice: so every claim, on its way or not yet made, is refused for ever. If the claim was first,
   there is no intent, and the sweeper lets go. If the outcome of the compare-and-set can't be found out, it lets go as
   well: the next round reads what came of it.
2. The ledger becomes a tombstone.
3. The intent goes.

What can't be read, intent or ledger, is left for the next round, and no round is held on its account.

A transaction that was held on its way and lands long after, brings intent and ledger together: an intent that begins
its grace time then. An intent without a ledger is one whose step 3 is outstanding; its ledger will not come any more.

The grace time counts from when this auditor saw the intent first: no clocks are compared, and none is needed.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable

from magnetar_bookie import paths
from magnetar_bookie.errors import LedgerError, NoSuchLedger, OutcomeNotKnown
from magnetar_bookie.ledger.ledger_client import LedgerClient
from magnetar_bookie.ledger.ledger_metadata import make_tombstone
from magnetar_metadata import compare_and_set
from magnetar_metadata.compare_and_set import DELETE, LEAVE, UpdateAction
from magnetar_metadata.errors import ForeignValue, OutcomeUnknown
from magnetar_metadata.undecodable_nodes import decode_node
from magnetar_protos.ledger_pb2 import LedgerIntent

__all__ = ["Sweeper"]

_log = logging.getLogger(__name__)


class Sweeper:
    def __init__(self, client: LedgerClient, grace_s: float) -> None:
        self._client = client
        self._store = client.ledgers.store
        self._grace_s = grace_s
        # Intents that are there, and when each was seen first.
        self._seen_at: dict[int, float] = {}
        # Those of them that could not be read in the last round, or whose ledger could not.
        self._unreadable: dict[int, None] = {}

    async def sweep(self, allowed: Callable[[], bool]) -> None:
        """One round over all intents, for as long as it is `allowed`."""
        ledger_ids = await self._client.ledgers.list_ledger_ids(paths.INTENTS)
        now = self._client.clock.monotonic()
        self._seen_at = {one: self._seen_at.get(one, now) for one in ledger_ids}
        self._unreadable = {}
        for ledger_id, seen_at in list(self._seen_at.items()):
            if seen_at + self._grace_s <= now and allowed():
                try:
                    await self._sweep(ledger_id)
                except (OutcomeUnknown, OutcomeNotKnown) as error:
                    _log.info("The deletion of unclaimed ledger %s is retried later: %s", ledger_id, error)
                except (ForeignValue, LedgerError) as error:
                    self._client.ledgers.undecodable_nodes.log_once(paths.intent(ledger_id), error)
                    self._unreadable[ledger_id] = None

    def next_due(self) -> float | None:
        seen_at = [seen_at for one, seen_at in self._seen_at.items() if one not in self._unreadable]
        return min(seen_at) + self._grace_s if seen_at else None

    async def _sweep(self, ledger_id: int) -> None:
        if not await self._take(ledger_id):
            return  # claimed
        with contextlib.suppress(NoSuchLedger):  # its holders were faster: the tombstone was there before
            await self._client.ledgers.change_metadata(ledger_id, make_tombstone)
        await self._change(ledger_id, lambda payload: LEAVE if payload is None else DELETE)
        _log.info("Deleted ledger %s, which was never claimed", ledger_id)

    async def _take(self, ledger_id: int) -> bool:
        """Sets `sweeping`. False: there is no intent."""

        def taken(payload: bytes | None) -> bytes | UpdateAction:
            if payload is None:
                return LEAVE
            intent = decode_node(LedgerIntent, paths.intent(ledger_id), payload)
            if intent.sweeping:
                return LEAVE
            intent.sweeping = True
            return intent.SerializeToString(deterministic=True)

        return await self._change(ledger_id, taken) is not None

    async def _change(self, ledger_id: int, update: compare_and_set.Update) -> compare_and_set.StoredValue | None:
        clock, randomness = self._client.clock, self._client.randomness
        return await compare_and_set.change(
            self._store, paths.intent(ledger_id), update, clock=clock, randomness=randomness
        )
