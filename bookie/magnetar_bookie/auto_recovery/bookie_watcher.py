"""The bookies as the metadata store lists them, for the auditor and the replication worker of a process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from magnetar_bookie import paths
from magnetar_bookie.auto_recovery.lost_bookies import ClusterView, LostBookies
from magnetar_bookie.client.ledger_client import LedgerClient
from magnetar_bookie.settings.auto_recovery import AutoRecoverySettings

__all__ = ["BookieWatcher"]


class BookieWatcher:
    """Auditor and replication worker share it, so that a bookie becomes lost for both at the same time."""

    def __init__(self, client: LedgerClient, settings: AutoRecoverySettings) -> None:
        self._client = client
        self.lost = LostBookies(settings.lost_bookie_recovery_delay_seconds)

    async def refresh_view(self) -> ClusterView:
        """Return a view that is at least as new as this call.

        The registrations are read from the metadata store. The client's list may be outdated after the session was
        suspended, and a bookie that has returned must not count as lost. The cookies are read last: a bookie writes its
        cookie before it registers, so every registered bookie has its cookie in the view.
        """
        store, bookies = self._client.ledgers.store, self._client.bookies
        await store.sync()
        alive = await store.children(paths.AVAILABLE)
        leaving = await store.children(paths.LEAVING)
        cookies = await store.children(paths.COOKIES)
        writable = [one for one in bookies.writable() if one in alive and one in cookies and one not in leaving]
        view = ClusterView(
            cookies=tuple(cookies),
            alive=tuple(alive),
            writable=tuple(writable),
            read_only=tuple(one for one, info in bookies.alive().items() if info.read_only),
            leaving=tuple(leaving),
        )
        self.lost.observe(view, self._client.clock.monotonic())
        return view

    def watch_bookies(self, on_change: Callable[[], object]) -> Callable[[], None]:
        """Record when bookies register and leave, and call `on_change` then. Return a function that ends this."""

        def record_change() -> None:
            alive, known = tuple(self._client.bookies.alive()), self.lost.view
            # A registered bookie has a cookie. One that registered after the last refresh must be missed, too.
            cookies = tuple(sorted(dict.fromkeys((*known.cookies, *alive))))
            view = replace(known, cookies=cookies, alive=alive)
            self.lost.observe(view, self._client.clock.monotonic())
            on_change()

        return self._client.bookies.listen(record_change)
