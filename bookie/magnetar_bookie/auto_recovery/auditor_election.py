"""The election of the auditor: the session that creates an ephemeral node is elected.

The election only distributes work. Nothing that the auditor does relies on being the only one (auditor.py). A term ends
when the session may have expired by this process' monotonic clock, even if the metadata store has not reported that,
since another process may have been elected by then.

If a former session of this process created the node, the election waits until that session expires, as for any other.
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
        # A term ends this long before the session's timeout. Two requests fit into the rest of it.
        self._margin_s = min(1.0, store.session.timeout_s / 4)

    def is_term_valid(self) -> bool:
        """Return whether no other process can have been elected yet."""
        return self._clock.monotonic() < self._store.session.safe_until(self._margin_s)

    async def wait_elected(self) -> None:
        """Return when this session is elected."""
        watch = self._store.watch(paths.AUDITOR)
        try:
            # A new watch reports a change at once.
            await watch.wait()
            while not await self._create_node():
                await watch.wait()
        finally:
            watch.close()

    async def wait_term_end(self) -> None:
        """Return when the term ends. Raises `SessionLost`."""
        pause_s = (self._store.session.timeout_s - self._margin_s) / 3
        while True:
            try:
                await self._store.ping()
                if await self._read_owner() != self._store.session.id:
                    return
            except Unavailable:
                pass  # the session may still exist: its clock decides
            if not self.is_term_valid():
                return
            await self._clock.sleep(pause_s)

    async def _create_node(self) -> bool:
        """Return whether the node is this session's, created now or by a request whose answer was lost."""
        while True:
            try:
                await self._store.put(paths.AUDITOR, self._value, ABSENT, ephemeral=True)
                return True
            except NodeExists:
                pass
            except (Refused, Unavailable):  # the store may be full
                await self._clock.sleep(self._retry_s)
                continue
            try:
                owner = await self._read_owner()
            except Unavailable:
                owner = None
            if owner is not None:
                return owner == self._store.session.id
            await self._clock.sleep(self._retry_s)

    async def _read_owner(self) -> int | None:
        stat = await self._store.exists(paths.AUDITOR)
        return None if stat is None else stat.ephemeral_owner
