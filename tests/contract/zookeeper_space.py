"""Spaces on ZooKeeper: each has a chroot of its own."""

from __future__ import annotations

import asyncio
import itertools

from kazoo.client import KazooClient

from magnetar_metadata.store import MetadataStore, SessionState
from magnetar_metadata.zookeeper import ZooKeeperStore, open_zookeeper
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

    async def _connect(self) -> ZooKeeperStore:
        return await self.connect_to(self._hosts)

    async def connect_to(self, hosts: str, session_timeout_s: float | None = None) -> ZooKeeperStore:
        """A session through given addresses (a proxy's)."""
        store = await open_zookeeper(
            hosts,
            SystemClock(),
            chroot=self._chroot,
            subtree_roots=ROOTS,
            session_timeout_s=session_timeout_s or self._session_timeout_s,
            connect_timeout_s=30,
        )
        self._opened.append(store)
        return store

    async def lose_session(self, store: MetadataStore) -> None:
        """Another client takes the session over and closes it."""
        assert isinstance(store, ZooKeeperStore)
        await asyncio.to_thread(self._close_session, store.kazoo.client.client_id)

    def _close_session(self, client_id: tuple[int, bytes]) -> None:
        thief = KazooClient(self._hosts, timeout=self._session_timeout_s, client_id=client_id)
        thief.start(30)
        thief.stop()
        thief.close()

    async def break_connection(self, store: MetadataStore) -> None:
        assert isinstance(store, ZooKeeperStore)
        broken: list[SessionState] = []
        stop = store.session.listen(broken.append)
        store.kazoo.cut_connection()
        await until(lambda: broken[-1:] == [SessionState.CONNECTED], "the connection is back")
        stop()
        assert broken[0] is SessionState.SUSPENDED
