"""Who is the auditor: whoever's session has made the ephemeral node.

Being elected is a way to share out work, no more: nothing that the auditor does relies on being the only one (see
auditor.py). A term ends when the session can't be believed any more, on the monotonic clock, and not only when its end
was told: another may have been elected by then.

A node that this process left in its former session stands until that session has run out, and is waited for like
anybody else's.
"""

from __future__ import annotations

from magnetar_bookie import paths
from magnetar_metadata.errors import NodeExists, Refused, Unavailable
from magnetar_metadata.store import ABSENT, MetadataStore
from magnetar_wire.clock import Clock

__all__ = ["AuditorElection"]


class AuditorElection:
    def __init__(self, store: MetadataStore, clock: Clock, bookie_id: str, retry_s: float) -> None:
        self._store = store
        self._clock = clock
        self._value = bookie_id.encode()
        self._retry_s = retry_s
        # So much of the time-out is left when the term ends, and two requests fit into it before.
        self._margin_s = min(1.0, store.session.timeout_s / 4)

    def is_term_valid(self) -> bool:
        """Whether nobody else can have been elected yet."""
        return self._clock.monotonic() < self._store.session.safe_until(self._margin_s)

    async def wait_elected(self) -> None:
        """Returns when this session is elected."""
        watch = self._store.watch(paths.AUDITOR)
        try:
            # A new watch is up at once.
            await watch.wait()
            while not await self._vote():
                await watch.wait()
        finally:
            watch.close()

    async def wait_term_end(self) -> None:
        """Returns when the term is over. Raises `SessionLost` when the session is."""
        pause_s = (self._store.session.timeout_s - self._margin_s) / 3
        while True:
            try:
                await self._store.ping()
                if await self._owner() != self._store.session.id:
                    return
            except Unavailable:
                pass  # the session may live on: its clock decides
            if not self.is_term_valid():
                return
            await self._clock.sleep(pause_s)

    async def _vote(self) -> bool:
        """Whether the node is ours, by this vote or by one whose answer was lost. False: there is another's."""
        while True:
            try:
                await self._store.put(paths.AUDITOR, self._value, ABSENT, ephemeral=True)
                return True
            except NodeExists:
                pass
            except (Refused, Unavailable):  # it may be full
                await self._clock.sleep(self._retry_s)
                continue
            try:
                owner = await self._owner()
            except Unavailable:
                owner = None
            if owner is not None:
                return owner == self._store.session.id
            await self._clock.sleep(self._retry_s)

    async def _owner(self) -> int | None:
        stat = await self._store.exists(paths.AUDITOR)
        return None if stat is None else stat.ephemeral_owner
