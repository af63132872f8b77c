"""The repair of one ledger: read its metadata, plan, copy, and plan again if the metadata has changed.

Several workers may repair one ledger at the same time, even one that was paused and whose view is outdated. Each of
their changes is harmless at any time:

- A copy is a record that the ledger's writer made, with its entry id. A bookie that has it answers OK and changes
  nothing; one on which the ledger was deleted refuses it.
- `add_holders`, before the first copy, makes a later tombstone wait for the bookie that may hold copies. If the ledger
  is a tombstone already, it is refused, and nothing is copied.
- `replace_bookie` is refused unless the slot still names the bookie whose entries were copied. The copied entries
  are what the slot should hold, since the fragment is final.
- Any process may recover a ledger at any time.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from magnetar_bookie.auto_recovery.bookie_watcher import BookieWatcher
from magnetar_bookie.auto_recovery.errors import CannotRepair, ReadOnlyTarget, TargetFailed
from magnetar_bookie.auto_recovery.fragment_replicator import Progress, copy_missing_entries
from magnetar_bookie.auto_recovery.ledger_repair_rules import (
    SlotRepair,
    choose_repair_target,
    count_slot_entries,
    describe_no_replacement,
    plan_repair,
)
from magnetar_bookie.auto_recovery.lost_bookies import ClusterView
from magnetar_bookie.errors import EnsembleOutdated, LedgerDeleted, LedgerError, NoSuchLedger
from magnetar_bookie.ledger import ensemble_rules
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

__all__ = ["LedgerRepair", "repair_slot"]

# Plans for one ledger before it is retried later, since others are changing it.
_PLANS: Final = 5


class LedgerRepair:
    """One attempt to repair one ledger. `copied` and `total` are its progress in entries."""

    def __init__(
        self,
        client: LedgerClient,
        bookie_watcher: BookieWatcher,
        settings: AutoRecoverySettings,
        ledger_id: int,
        progress: Progress,
    ) -> None:
        self._client = client
        self._bookie_watcher = bookie_watcher
        self._settings = settings
        self._ledger_id = ledger_id
        self._progress = progress
        self.copied = 0
        self.total = 0

    async def run(self, reported: Sequence[str]) -> str:
        """Return why the ledger could not be repaired; "" if it is fully replicated or deleted.

        `reported`: bookies that the auditor found lost. They are replaced unless they have registered again.
        """
        try:
            for _ in range(_PLANS):
                try:
                    return await self._attempt(reported)
                except FragmentChanged:
                    continue
        except (NoSuchLedger, LedgerDeleted):
            return ""
        except (LedgerError, ForeignValue) as error:
            return str(error)
        return "the ledger was changed by others during each attempt"

    async def _attempt(self, reported: Sequence[str]) -> str:
        client, lost = self._client, self._bookie_watcher.lost
        metadata = await client.ledgers.read_metadata(self._ledger_id, fresh=True)
        if metadata.state is LedgerState.TOMBSTONE:
            return ""
        # After the metadata: the bookies that it names had their cookies before.
        view = await self._bookie_watcher.refresh_view()
        now = client.clock.monotonic()
        bookies = metadata.bookies()
        lost.observe_named(bookies, now)
        to_replace = [one for one in bookies if lost.is_lost(one, now) or (one in reported and one not in view.alive)]
        grace_s = self._settings.open_ledger_rereplication_grace_period_seconds
        overdue = [one for one in bookies if lost.is_lost_for(one, now, grace_s)]
        choose = partial(ensemble_rules.choose_replacement, randomness=client.randomness)
        plan = plan_repair(metadata, view, to_replace, overdue, choose, everything=not to_replace)
        if plan.recover:
            await client.recover(self._ledger_id)
            raise FragmentChanged("the ledger was recovered")
        self.copied = 0
        self.total = sum(
            count_slot_entries(metadata.striping, step.slot, step.first_entry_id, step.last_entry_id)
            for step in plan.steps
        )
        stuck = list(plan.stuck)
        for step in plan.steps:
            try:
                await self._repair_slot(metadata, view, step)
            except CannotRepair as error:
                stuck.append(str(error))
        return "; ".join(dict.fromkeys(stuck))

    async def _repair_slot(self, metadata: LedgerMetadata, view: ClusterView, step: SlotRepair) -> None:
        client, settings, ledger_id = self._client, self._settings, self._ledger_id
        read_only = step.target in view.read_only
        try:
            await repair_slot(client, settings, ledger_id, metadata, step, self._add_copied, read_only=read_only)
        except ReadOnlyTarget:
            # It can't be given the missing entries: another bookie replaces it. It still serves the entries that it
            # has.
            fragment = find_fragment(metadata.fragments, step.first_entry_id)
            choose = partial(ensemble_rules.choose_replacement, randomness=client.randomness)
            target = choose_repair_target(fragment.bookies, fragment, view.writable, choose)
            if target is None:
                raise CannotRepair(
                    f"{describe_no_replacement(step)} ({step.target} lacks entries and is read-only)"
                ) from None
            await repair_slot(client, settings, ledger_id, metadata, step.with_target(target), self._add_copied)

    async def _add_copied(self, entries: int) -> None:
        self.copied = min(self.copied + entries, self.total)
        await self._progress(entries)


async def repair_slot(
    client: LedgerClient,
    settings: AutoRecoverySettings,
    ledger_id: int,
    metadata: LedgerMetadata,
    step: SlotRepair,
    progress: Progress,
    *,
    read_only: bool = False,
) -> None:
    """Copy the slot's missing entries to the target, then name the target in the metadata.

    Raises `CannotRepair`, and `FragmentChanged` if a new plan is needed.
    """
    if step.replaces:
        await client.ledgers.change_metadata(ledger_id, lambda current: add_holders(current, step.target))
    try:
        await copy_missing_entries(client, settings, ledger_id, metadata, step, progress, read_only=read_only)
    except TargetFailed:
        if step.replaces:
            client.bookies.quarantine(step.target)
        raise
    if step.replaces:
        try:
            await client.ledgers.change_metadata(
                ledger_id,
                lambda current: replace_bookie(current, step.first_entry_id, step.slot, step.current, step.target),
                client.bookies.cookie_checks([step.target]),
            )
        except EnsembleOutdated as error:
            await client.bookies.reread_cookies(error.bookie_ids)
            raise FragmentChanged(f"the repair needs another bookie: {error}") from error
