"""The in-memory store keeps the contract."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from magnetar_metadata.store import MetadataStore
from magnetar_testing.metadata import MemoryServer
from magnetar_testing.metadata.store import MemoryStore
from magnetar_wire.clock import SystemClock
from tests.contract.metadata_store_contract import ROOTS, MetadataStoreContract, Space


class MemorySpace(Space):
    def __init__(self) -> None:
        super().__init__()
        self._server = MemoryServer(SystemClock(), ROOTS)

    async def _connect(self) -> MetadataStore:
        return self._server.connect()

    async def lose_session(self, store: MetadataStore) -> None:
        assert isinstance(store, MemoryStore)
        self._server.expire(store)

    async def break_connection(self, store: MetadataStore) -> None:
        assert isinstance(store, MemoryStore)
        self._server.suspend(store)
        self._server.resume(store)


class TestMemoryStore(MetadataStoreContract):
    @pytest.fixture
    async def space(self) -> AsyncIterator[Space]:
        async with MemorySpace() as space:
            yield space
