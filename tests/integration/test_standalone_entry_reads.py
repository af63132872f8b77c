"""What a standalone's address lets others read of its bookie's ledgers, and what not."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import magnetar
from magnetar_bookie.read.entry_reader import EntryReader
from magnetar_bookie.read.striping import Fragment, Striping
from magnetar_cli.standalone.settings import StandaloneSettings
from magnetar_cli.standalone.standalone import Standalone
from magnetar_protos.ledger_pb2 import FenceRequest, ReadAnswer, ReadRequest
from magnetar_wire.clock import SystemClock
from magnetar_wire.grpc_transport import GrpcTransport
from magnetar_wire.transport import Code, Rejected


@pytest.mark.slow
async def test_entries_are_read_at_the_standalones_own_address_and_nothing_else(tmp_path: Path) -> None:
    """SPK-5: executors read a standalone's bookie by plain range reads; a fence, an add or the like is refused."""
    settings = StandaloneSettings(data_folder=tmp_path / "data", grpc_port=0, pulsar_port=0, http_port=0)
    async with Standalone(settings) as standalone:
        await asyncio.to_thread(_publish, standalone.grpc_url)
        assert standalone.broker is not None
        address = standalone.broker.advertised_address
        assert standalone.bookie is not None
        assert standalone.bookie.advertised_address == address
        connection = GrpcTransport().connect(address)
        try:

            async def ask(_bookie: str, request: ReadRequest, timeout_s: float) -> ReadAnswer:
                return ReadAnswer.FromString(
                    await connection.call("read", request.SerializeToString(), timeout_s=timeout_s)
                )

            found = []
            for ledger_id in standalone.bookie.bookie.storage.list_ledger_ids(0, 100):
                reader = EntryReader(
                    ledger_id,
                    Striping(1, 1, 1),
                    [Fragment(0, ("standalone",))],
                    ask,
                    SystemClock(),
                    timeout_s=30,
                    speculative_timeout_s=30,
                )
                found += (await reader.read(0, 0)).records
            assert any(b"read past the broker" in record for record in found)
            fencing = ReadRequest(ledger_id=1, first_entry_id=0, last_entry_id=0, fence=True, master_key=b"k")
            assert await _refused(connection.call("read", fencing.SerializeToString(), timeout_s=30)) is (
                Code.PERMISSION_DENIED
            )
            assert await _refused(connection.call("read", b"\xff", timeout_s=30)) is Code.INVALID_ARGUMENT
            for method in ("fence", "confirm", "last_add_confirmed", "inventory"):
                request = FenceRequest(ledger_id=1).SerializeToString()
                assert await _refused(connection.call(method, request, timeout_s=30)) is Code.UNIMPLEMENTED
            adds = connection.open_stream("add")
            assert await _refused(adds.receive()) is Code.UNIMPLEMENTED
        finally:
            await connection.close()


def _publish(url: str) -> None:
    with magnetar.Client(url) as client, client.create_producer("t") as producer:
        producer.send(b"read past the broker")


async def _refused(request: object) -> Code:
    with pytest.raises(Rejected) as refused:
        await request  # type: ignore[misc]
    return refused.value.code
