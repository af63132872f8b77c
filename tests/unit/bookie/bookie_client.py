"""One bookie on a simulated disk, and its requests as plain calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from google.protobuf.message import Message

from magnetar_bookie.read.record import MAX_RECORD_BYTES, encode_record
from magnetar_bookie.server.bookie import Bookie
from magnetar_bookie.settings.server import BookieServerSettings
from magnetar_protos.frame_pb2 import Frame
from magnetar_protos.ledger_pb2 import (
    AddAnswers,
    AddRequest,
    AddRun,
    ConfirmAnswer,
    ConfirmRequest,
    FenceAnswer,
    FenceRequest,
    InventoryAnswer,
    InventoryRequest,
    LastAddConfirmedAnswer,
    LastAddConfirmedRequest,
    ReadAnswer,
    ReadRequest,
    Status,
)
from magnetar_testing.randomness import SeededRandomness
from magnetar_wire.clock import Clock, SystemClock
from magnetar_wire.frame import FrameBuilder
from magnetar_wire.in_process_transport import InProcessTransport
from magnetar_wire.transport import Connection, Listener, Stream
from tests.sim.disk import DiskFaults, SimulatedDisk

KEY = b"the master key"
NO_LATENCY = DiskFaults(shortest_sync_s=0, longest_sync_s=0, longest_read_s=0)

A = TypeVar("A", bound=Message)


def record(ledger_id: int, entry_id: int, entry: bytes | None = None, last_add_confirmed: int | None = None) -> bytes:
    entry = b"entry %d" % entry_id if entry is None else entry
    confirmed = entry_id - 1 if last_add_confirmed is None else last_add_confirmed
    return encode_record(ledger_id, entry_id, confirmed, 0, entry)


def add_request(ledger_id: int, records: Sequence[tuple[int, bytes]], key: bytes, *, recovery: bool) -> bytes:
    frame = FrameBuilder(max_entry_bytes=MAX_RECORD_BYTES)
    for entry_id, one in records:
        assert frame.try_add_entry(ledger_id, entry_id, one)
    runs = [AddRun(master_key=key, recovery=recovery)] * frame.run_count
    return AddRequest(frame=Frame.FromString(b"".join(frame.build_parts())), runs=runs).SerializeToString()


class OneBookie:
    """A bookie that can be called, crashed and restarted."""

    def __init__(
        self,
        settings: BookieServerSettings | None = None,
        disk: SimulatedDisk | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.clock = clock or SystemClock()
        self.disk = disk or SimulatedDisk(self.clock, SeededRandomness(1), NO_LATENCY)
        self.settings = settings
        self._transport = InProcessTransport(self.clock)
        self.bookie: Bookie
        self._listener: Listener
        self._connection: Connection

    async def start(self) -> OneBookie:
        self.bookie = Bookie("b1", self.disk.open(), self.clock, self.settings)
        self._listener = await self._transport.listen("b1:0", self.bookie)
        self._connection = self._transport.connect(self._listener.address)
        return self

    async def crash(self) -> None:
        """What was not synced may survive or not."""
        self.disk.crash()
        await self.stop()

    async def stop(self) -> None:
        await self._connection.close()
        await self._listener.close()
        await self.bookie.close()

    async def __aenter__(self) -> OneBookie:
        return await self.start()

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    def adds(self) -> Stream:
        return self._connection.open_stream("add")

    async def call(self, method: str, request: Message, answer: type[A]) -> A:
        return answer.FromString(await self._connection.call(method, request.SerializeToString(), timeout_s=600))

    async def add(
        self, ledger_id: int, *records: tuple[int, bytes], key: bytes = KEY, recovery: bool = False
    ) -> list[Status]:
        """The answers to these adds, sent in one frame, in their order."""
        stream = self.adds()
        await stream.send(add_request(ledger_id, records, key, recovery=recovery))
        await stream.finish()
        statuses: dict[int, list[Status]] = {}
        while (message := await stream.receive()) is not None:
            for answer in AddAnswers.FromString(message).answers:
                assert answer.ledger_id == ledger_id
                for entry_id in range(answer.first_entry_id, answer.first_entry_id + answer.count):
                    statuses.setdefault(entry_id, []).append(answer.status)
        return [statuses[entry_id].pop(0) for entry_id, _ in records]

    async def add_one(self, ledger_id: int, entry_id: int, *, recovery: bool = False, key: bytes = KEY) -> Status:
        (status,) = await self.add(ledger_id, (entry_id, record(ledger_id, entry_id)), key=key, recovery=recovery)
        return status

    async def fence(self, ledger_id: int, key: bytes = KEY, read_entries: int = 0) -> FenceAnswer:
        request = FenceRequest(ledger_id=ledger_id, master_key=key, read_entries=read_entries)
        return await self.call("fence", request, FenceAnswer)

    async def confirm(self, ledger_id: int, last_add_confirmed: int, key: bytes = KEY) -> Status:
        request = ConfirmRequest(ledger_id=ledger_id, master_key=key, last_add_confirmed=last_add_confirmed)
        return (await self.call("confirm", request, ConfirmAnswer)).status

    async def last_add_confirmed(self, ledger_id: int, above: int = -2, wait_ms: int = 0) -> LastAddConfirmedAnswer:
        request = LastAddConfirmedRequest(ledger_id=ledger_id, above=above, wait_ms=wait_ms)
        return await self.call("last_add_confirmed", request, LastAddConfirmedAnswer)

    async def read(
        self,
        ledger_id: int,
        first: int,
        last: int | None = None,
        *,
        step: int = 1,
        max_bytes: int = 0,
        fence: bool = False,
    ) -> ReadAnswer:
        request = ReadRequest(
            ledger_id=ledger_id,
            first_entry_id=first,
            last_entry_id=first if last is None else last,
            step=step,
            max_bytes=max_bytes,
            fence=fence,
            master_key=KEY if fence else b"",
        )
        return await self.call("read", request, ReadAnswer)

    async def inventory(self, ledger_id: int, first: int, last: int) -> InventoryAnswer:
        request = InventoryRequest(ledger_id=ledger_id, first_entry_id=first, last_entry_id=last)
        return await self.call("inventory", request, InventoryAnswer)
