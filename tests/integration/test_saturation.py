"""Publishers that have more in flight than a slow disk takes, on the real parts of a standalone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from magnetar import aio
from magnetar_bookie.ledger.ledger_client import LedgerClient
from magnetar_bookie.ledger.ledger_metadata_store import NewLedger
from magnetar_bookie.ledger.ledger_writer import LedgerWriter
from magnetar_bookie.read.striping import Striping
from magnetar_bookie.storage.interface import StorageFailed
from magnetar_bookie.storage.rocksdb import RocksStorage
from magnetar_cli.standalone.settings import StandaloneSettings
from magnetar_cli.standalone.standalone import Standalone

pytestmark = pytest.mark.slow

_TOPICS, _MESSAGES, _MESSAGE_BYTES = 5, 24, 100_000
_SYNC_S = 0.15
_MIB = 1 << 20


def slow_down(storage: RocksStorage) -> None:
    """Each sync takes `_SYNC_S` longer."""
    start_sync = storage.start_sync

    def start_slowly(on_done: Callable[[StorageFailed | None], object]) -> None:
        start_sync(lambda error: asyncio.get_running_loop().call_later(_SYNC_S, on_done, error))

    storage.start_sync = start_slowly  # type: ignore[method-assign]


def count_ledgers(client: LedgerClient) -> list[str]:
    """The purposes of the ledgers that are made from now on."""
    create, made = client.create, list[str]()

    async def counted(
        striping: Striping,
        purpose: str,
        properties: Mapping[str, bytes] | None = None,
        *,
        explicit_lac: bool = True,
    ) -> tuple[NewLedger, LedgerWriter]:
        made.append(purpose)
        return await create(striping, purpose, properties, explicit_lac=explicit_lac)

    client.create = counted  # type: ignore[method-assign]
    return made


@pytest.mark.parametrize(
    "lag_bytes", [pytest.param(0, id="the default lag bound"), pytest.param(_MIB, id="one below what is in flight")]
)
async def test_busy_topics_on_a_slow_disk_go_on_in_their_ledgers(lag_bytes: int) -> None:
    """CHK-66, STO-1: every message is acknowledged, and each topic makes one ledger."""

    async def publish(client: aio.Client, number: int) -> int:
        options: dict[str, Any] = {"send_timeout_millis": 0, "batching_enabled": False}
        producer = await client.create_producer(f"busy{number}", **options)
        ids = await asyncio.gather(*(producer.send(b"x" * _MESSAGE_BYTES) for _ in range(_MESSAGES)))
        return len(set(map(str, ids)))

    settings = StandaloneSettings(
        ephemeral=True,
        grpc_port=0,
        pulsar_port=0,
        http_port=0,
        max_message_publish_buffer_size_in_mb=8,
        max_pending_publish_bytes_per_topic=2 * _MIB,
    )
    if lag_bytes:  # which is refused where settings are read
        settings = settings.model_copy(update={"max_bookie_lag_bytes": lag_bytes})
    async with Standalone(settings) as standalone:
        assert standalone.storage is not None
        assert standalone.broker is not None
        assert standalone.broker.session is not None
        slow_down(standalone.storage)
        made = count_ledgers(standalone.broker.session.client)
        client = aio.Client(standalone.grpc_url)
        try:
            stored = await asyncio.gather(*(publish(client, number) for number in range(_TOPICS)))
        finally:
            await client.close()
        assert stored == [_MESSAGES] * _TOPICS
        assert len(made) == _TOPICS, made
