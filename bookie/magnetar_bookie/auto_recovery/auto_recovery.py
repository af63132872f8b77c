"""Auto-recovery of one process: a replication worker, and a candidate for auditor.

It runs during one metadata session. If the store does not answer, it waits; if the session is lost, it ends, and its
owner starts another one with the next session.
"""

from __future__ import annotations

from magnetar_bookie.auto_recovery.auditor import Auditor
from magnetar_bookie.auto_recovery.auditor_election import AuditorElection
from magnetar_bookie.auto_recovery.bookie_watcher import BookieWatcher
from magnetar_bookie.auto_recovery.replication_worker import ReplicationWorker
from magnetar_bookie.client.ledger_client import LedgerClient
from magnetar_bookie.core.counters import RepairCounters
from magnetar_bookie.settings.auto_recovery import AutoRecoverySettings
from magnetar_metadata.errors import SessionLost
from magnetar_wire.tasks import OrderedTaskGroup

__all__ = ["AutoRecovery"]


class AutoRecovery:
    def __init__(
        self,
        bookie_id: str,
        client: LedgerClient,
        settings: AutoRecoverySettings | None = None,
        counters: RepairCounters | None = None,
    ) -> None:
        self._client = client
        self._settings = settings or AutoRecoverySettings()
        self._bookie_watcher = BookieWatcher(client, self._settings)
        self.replication_worker = ReplicationWorker(client, self._bookie_watcher, self._settings, counters)
        # Whether this process is the auditor.
        self.auditing = False
        self._election = AuditorElection(
            client.ledgers.store, client.clock, bookie_id, self._settings.metadata_retry_seconds
        )

    async def run(self) -> None:
        """Run until cancelled. Raises `SessionLost`."""
        try:
            async with OrderedTaskGroup() as group:
                group.create_task(self.replication_worker.run())
                group.create_task(self._audit_when_elected())
        except BaseExceptionGroup as errors:
            raise _session_lost_or_all(errors) from None

    async def _audit_when_elected(self) -> None:
        while True:
            await self._election.wait_elected()
            auditor = Auditor(self._client, self._bookie_watcher, self._settings, self._election.is_term_valid)
            self.auditing = True
            try:
                async with OrderedTaskGroup() as group:
                    group.create_task(auditor.run())
                    await self._election.wait_term_end()
                    group.cancel()
            finally:
                self.auditing = False


def _session_lost_or_all(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return a `SessionLost` if there are no other errors, else all of them."""
    lost, others = errors.split(SessionLost)
    while isinstance(lost, BaseExceptionGroup):
        lost = lost.exceptions[0]  # type: ignore[assignment]
    return errors if others is not None or lost is None else lost
