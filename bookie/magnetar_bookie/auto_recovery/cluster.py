"""What this process sees of the bookies: the view that repair and audit decide on, and who is lost by it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from magnetar_bookie import paths
from magnetar_bookie.core.lost_bookies import ClusterView, LostBookies
from magnetar_bookie.ledger.ledger_client import LedgerClient
from magnetar_bookie.settings.auto_recovery import AutoRecoverySettings

__all__ = ["Cluster"]


class Cluster:
    """Auditor and worker of one process share it, so that both have seen a bookie go at the same time."""

    def __init__(self, client: LedgerClient, settings: AutoRecoverySettings) -> None:
        self._client = client
        self.lost = LostBookies(settings.lost_bookie_recovery_delay_seconds)

    async def look(self) -> ClusterView:
        """A view that is at least as new as this call.

        The registrations are read here and not taken from the client, who may not have caught up yet after the session
        was suspended: a bookie that has long returned must not be taken for lost. The cookies are read last, since a
        bookie has its cookie before it registers: nobody who is alive is taken for one without a cookie.
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
            read_only=tuple(one for one, info in bookies.registered().items() if info.read_only),
            leaving=tuple(leaving),
        )
        self.lost.observe(view, self._client.clock.monotonic())
        return view

    def follow(self, changed: Callable[[], object]) -> Callable[[], None]:
        """Notes who comes and goes at the time, and tells; returns what ends that."""

        def heard() -> None:
            alive, known = tuple(self._client.bookies.registered()), self.lost.view
            # Who registers has a cookie. One that came after the last look is to be missed, too, when it goes.
            cookies = tuple(sorted(dict.fromkeys((*known.cookies, *alive))))
            view = replace(known, cookies=cookies, alive=alive)
            self.lost.observe(view, self._client.clock.monotonic())
            changed()

        return self._client.bookies.add_listener(heard)
