"""Repairing one ledger: look, plan, perform, and plan anew where something changed under our hands.

Several may repair one ledger at once, among them one that was paused and knows nothing of what has happened. Each act
of theirs is harmless at any time:

- a copy is a record that its writer made, written under its own id: a bookie that has it says OK and changes nothing;
  one on which the ledger was deleted says so;
- `add_holders`, before the first copy, has a later tombstone wait for the bookie that may hold copies. Where the ledger
  is a tombstone already it is refused, and nothing is copied;
- `replace_bookie` is refused unless the slot still names the bookie whose entries were copied. What was copied
  stays what the slot should hold, since the fragment is final;
- recovery is open to anybody at any time.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from magnetar_bookie.auto_recovery.cluster import Cluster
from magnetar_bookie.auto_recovery.copying import Progress, ReadOnlyTarget, TargetFailed, fill_slot
from magnetar_bookie.auto_recovery.errors import CannotRepair
from magnetar_bookie.core.lost_bookies import ClusterView
from magnetar_bookie.core.repair import FillSlot, entries_of_slot, no_successor, plan_repair, successor
from magnetar_bookie.errors import EnsembleOutdated, LedgerDeleted, LedgerError, NoSuchLedger
from magnetar_bookie.ledger.ensemble_rules import choose_replacement
from magnetar_bookie.ledger.ledger_client import LedgerClient
from magnetar_bookie.ledger.ledger_metadata import (
    FragmentChanged,
    LedgerMetadata,
    LedgerState,
    add_holders,
    replace_bookie,
)
from magnetar_bookie.read.striping import find_fragment
from magnetar_bookie.settings.auto_recovery import AutoRecoverySettings
from magnetar_metadata.errors import ForeignValue

__all__ = ["LedgerRepair", "put_in_place"]

# Plans for one ledger before it is left for later: others are changing it.
_PLANS: Final = 5


class LedgerRepair:
    """One attempt at one ledger. `copied` and `total` say how far it is."""

    def __init__(
        self, client: LedgerClient, cluster: Cluster, settings: AutoRecoverySettings, ledger_id: int, progress: Progress
    ) -> None:
        self._client = client
        self._cluster = cluster
        self._settings = settings
        self._ledger_id = ledger_id
        self._progress = progress
        self.copied = 0
        self.total = 0

    async def run(self, named: Sequence[str]) -> str:
        """Why the ledger could not be made whole; empty: it is, or it was deleted.

        `named` are bookies that the auditor found lost: they are replaced unless they came back since.
        """
        try:
            for _ in range(_PLANS):
                try:
                    return await self._attempt(named)
                except FragmentChanged:
                    continue
        except (NoSuchLedger, LedgerDeleted):
            return ""
        except (LedgerError, ForeignValue) as error:
            return str(error)
        return "the ledger was changed by others during each attempt"

    async def _attempt(self, named: Sequence[str]) -> str:
        client, lost = self._client, self._cluster.lost
        metadata = await client.ledgers.read_metadata(self._ledger_id, fresh=True)
        if metadata.state is LedgerState.TOMBSTONE:
            return ""
        # After the metadata: a bookie that it names has had its cookie by then.
        view = await self._cluster.look()
        now = client.clock.monotonic()
        bookies = metadata.bookies()
        lost.name(bookies, now)
        gone = [one for one in bookies if lost.lost(one, now) or (one in named and one not in view.alive)]
        grace_s = self._settings.open_ledger_rereplication_grace_period_seconds
        overdue = [one for one in bookies if lost.overdue(one, now, grace_s)]
        choose = partial(choose_replacement, randomness=client.randomness)
        plan = plan_repair(metadata, view, gone, overdue, choose, everything=not gone)
        if plan.recover:
            await client.recover(self._ledger_id)
            raise FragmentChanged("the ledger was recovered")
        self.copied = 0
        self.total = sum(
            entries_of_slot(metadata.striping, step.slot, step.first_entry_id, step.last_entry_id)
            for step in plan.steps
        )
        stuck = list(plan.stuck)
        for step in plan.steps:
            try:
                await self._perform(metadata, view, step)
            except CannotRepair as error:
                stuck.append(str(error))
        return "; ".join(dict.fromkeys(stuck))

    async def _perform(self, metadata: LedgerMetadata, view: ClusterView, step: FillSlot) -> None:
        try:
            await put_in_place(
                self._client,
                self._settings,
                self._ledger_id,
                metadata,
                step,
                self._copied,
                read_only=step.target in view.read_only,
            )
        except ReadOnlyTarget:
            # It can't be given what it lacks: another takes its place, and it goes on serving what it has.
            fragment = find_fragment(metadata.fragments, step.first_entry_id)
            choose = partial(choose_replacement, randomness=self._client.randomness)
            target = successor(fragment.bookies, fragment, view.writable, choose)
            if target is None:
                raise CannotRepair(f"{no_successor(step)} ({step.target} lacks entries and is read-only)") from None
            await put_in_place(self._client, self._settings, self._ledger_id, metadata, step.at(target), self._copied)

    async def _copied(self, entries: int) -> None:
        self.copied = min(self.copied + entries, self.total)
        await self._progress(entries)


async def put_in_place(
    client: LedgerClient,
    settings: AutoRecoverySettings,
    ledger_id: int,
    metadata: LedgerMetadata,
    step: FillSlot,
    progress: Progress,
    *,
    read_only: bool = False,
) -> None:
    """Fills the slot, and then has the target stand in it."""
    if step.replaces:
        await client.ledgers.change_metadata(ledger_id, lambda current: add_holders(current, step.target))
    try:
        await fill_slot(client, settings, ledger_id, metadata, step, progress, read_only=read_only)
    except TargetFailed:
        if step.replaces:
            client.bookies.quarantine(step.target)
        raise
    if step.replaces:
        try:
            await client.ledgers.change_metadata(
                ledger_id,
                lambda current: replace_bookie(current, step.first_entry_id, step.slot, step.listed, step.target),
                client.bookies.cookie_checks([step.target]),
            )
        except EnsembleOutdated as error:
            await client.bookies.reread_cookies(error.bookie_ids)
            raise FragmentChanged(f"the repair needs another bookie: {error}") from error
