"""Auto-recovery as one process runs it: a worker, and a candidate for the auditor's office.

It lives with one metadata session. A store that gives no answer is waited for; a session that is lost ends it all, and
who owns it begins anew with another.
"""

from __future__ import annotations

from magnetar_bookie.auto_recovery.auditor import Auditor
from magnetar_bookie.auto_recovery.cluster import Cluster
from magnetar_bookie.auto_recovery.election import Election
from magnetar_bookie.auto_recovery.worker import Worker
from magnetar_bookie.core.counters import RepairCounters
from magnetar_bookie.ledger.ledger_client import LedgerClient
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
        self._cluster = Cluster(client, self._settings)
        self.worker = Worker(client, self._cluster, self._settings, counters)
        # Whether this process holds the auditor's office.
        self.auditing = False
        self._election = Election(client.ledgers.store, client.clock, bookie_id, self._settings.metadata_retry_seconds)

    async def run(self) -> None:
        """Until cancelled. Raises `SessionLost` when the metadata session is."""
        try:
            async with OrderedTaskGroup() as group:
                group.create_task(self.worker.run())
                group.create_task(self._auditing())
        except BaseExceptionGroup as errors:
            raise _plain(errors) from None

    async def _auditing(self) -> None:
        while True:
            await self._election.won()
            auditor = Auditor(self._client, self._cluster, self._settings, self._election.safe)
            self.auditing = True
            try:
                async with OrderedTaskGroup() as group:
                    group.create_task(auditor.run())
                    await self._election.term()
                    group.cancel()
            finally:
                self.auditing = False


def _plain(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    """The session's end, if that was all; otherwise everything."""
    lost, others = errors.split(SessionLost)
    while isinstance(lost, BaseExceptionGroup):
        lost = lost.exceptions[0]  # type: ignore[assignment]
    return errors if others is not None or lost is None else lost
