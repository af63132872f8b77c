"""Spaces on ZooKeeper: each has a chroot of its own."""

from __future__ import annotations

import asyncio
import itertools

from kazoo.client import KazooClient

from magnetar_metadata.store import MetadataStore, SessionState
from magnetar_metadata.zookeeper import ZooKeeperStore
from magnetar_metadata.zookeeper.kazoo_session import KazooSession
from magnetar_wire.clock import SystemClock
from tests.contract.metadata_store_contract import ROOTS, Space
from tests.running import until

_numbers = itertools.count()


class ZooKeeperSpace(Space):
    def __init__(self, hosts: str, session_timeout_s: float = 10.0) -> None:
        super().__init__()
        self._hosts = hosts
        self._chroot = f"/contract/{next(_numbers)}"
        self._session_timeout_s = session_timeout_s
        self._sessions: dict[MetadataStore, KazooSession] = {}

    async def _connect(self) -> ZooKeeperStore:
        return await self.connect_to(self._hosts)

    async def connect_to(self, hosts: str, session_timeout_s: float | None = None) -> ZooKeeperStore:
        """Open a session through the given addresses, a proxy's for example.

        Does what `open_zookeeper` does, and keeps the session beneath the store, which tests break.
        """
        clock = SystemClock()
        kazoo = KazooSession(hosts, clock, session_timeout_s or self._session_timeout_s)
        await kazoo.start(30)
        try:
            store = ZooKeeperStore(kazoo, clock, self._chroot, ROOTS)
            await store.create_own_nodes()
        except BaseException:
            await kazoo.close()
            raise
        self._sessions[store] = kazoo
        self._opened.append(store)
        return store

    def session_beneath(self, store: MetadataStore) -> KazooSession:
        return self._sessions[store]

    async def lose_session(self, store: MetadataStore) -> None:
        """Another client takes the session over and closes it."""
        await asyncio.to_thread(self._close_session, self.session_beneath(store).client.client_id)

    def _close_session(self, client_id: tuple[int, bytes]) -> None:
        thief = KazooClient(self._hosts, timeout=self._session_timeout_s, client_id=client_id)
        thief.start(30)
        thief.stop()
        thief.close()

    async def break_connection(self, store: MetadataStore) -> None:
        broken: list[SessionState] = []
        stop = store.session.listen(broken.append)
        self.session_beneath(store).cut_connection()
        await until(lambda: broken[-1:] == [SessionState.CONNECTED], "the connection is back")
        stop()
        assert broken[0] is SessionState.SUSPENDED
