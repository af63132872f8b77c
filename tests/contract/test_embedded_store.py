"""The embedded store keeps the contract."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from magnetar_metadata.embedded import EmbeddedDatabase
from magnetar_metadata.errors import OutcomeUnknown
from magnetar_metadata.locked_folder import DurableMark
from magnetar_metadata.store import ANY, MetadataStore
from magnetar_wire.clock import SystemClock
from tests.contract.metadata_store_contract import ROOTS, MetadataStoreContract, Space


class EmbeddedSpace(Space):
    def __init__(self, folder: Path, database: EmbeddedDatabase) -> None:
        super().__init__()
        self._folder = folder
        self._database: EmbeddedDatabase | None = database

    async def _connect(self) -> MetadataStore:
        if self._database is None:
            self._database = await EmbeddedDatabase.open(self._folder, SystemClock(), ROOTS)
        return self._database.connect()

    async def lose_session(self, store: MetadataStore) -> None:
        """All sessions of a folder are lost when a write fails."""
        assert self._database is not None
        with pytest.MonkeyPatch.context() as patch, pytest.raises(OutcomeUnknown):
            patch.setattr(DurableMark, "sync", _fail)
            await store.put("/unlucky", b"", ANY)
        await self._database.close()
        self._database = None

    async def close(self) -> None:
        await super().close()
        if self._database is not None:
            await self._database.close()


def _fail(mark: DurableMark) -> None:
    raise OSError("the disk is missing")


class TestEmbeddedStore(MetadataStoreContract):
    @pytest.fixture
    async def space(self, tmp_path: Path) -> AsyncIterator[Space]:
        database = await EmbeddedDatabase.open(tmp_path, SystemClock(), ROOTS)
        async with EmbeddedSpace(tmp_path, database) as space:
            yield space
