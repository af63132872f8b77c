"""A ledger client and small bookies in memory, which misbehave on demand."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Self

from magnetar_bookie.errors import AddFailed
from magnetar_bookie.ledger.ledger_client import LedgerClient
from magnetar_bookie.ledger.ledger_writer import LedgerWriter
from magnetar_bookie.read.record import MAX_RECORD_BYTES, check_record, extract_entry
from magnetar_bookie.read.striping import Striping
from magnetar_bookie.settings.ledger_client import LedgerClientSettings
from magnetar_protos.ledger_pb2 import (
    AddAnswer,
    AddAnswers,
    AddRequest,
    ConfirmAnswer,
    ConfirmRequest,
    LastAddConfirmedAnswer,
    Status,
)
from magnetar_testing.clock import ManualClock
from magnetar_testing.metadata import MemoryServer, MemoryStore
from magnetar_testing.randomness import SeededRandomness
from magnetar_wire.frame import decode_frame
from magnetar_wire.in_process_transport import InProcessTransport
from magnetar_wire.transport import Code, Listener, Peer, Refusal, Stream
from tests.registered_bookies import register_bookie
from tests.running import until

__all__ = ["QUICK", "FakeBookie", "Outcomes", "Scene"]

QUICK = LedgerClientSettings(explicit_lac_interval_ms=0)


class FakeBookie:
    """Stores what it is sent. While `holding` it does not answer; `status` is its answer."""

    def __init__(self, scene: Scene, bookie_id: str) -> None:
        self.scene = scene
        self.bookie_id = bookie_id
        # ledger id → entry id → record
        self.records: dict[int, dict[int, bytes]] = {}
        self.fenced: set[int] = set()
        self.confirmed: dict[int, int] = {}
        self.status: Status = Status.OK
        self.holding = False
        self.held: list[tuple[Stream, AddAnswer]] = []
        self.frames: list[int] = []
        self.store: MemoryStore | None = None
        self.listener: Listener | None = None

    async def come(self, *, read_only: bool = False) -> None:
        """Listen and register, or register again."""
        if self.listener is None:
            self.listener = await self.scene.transport.listen(self.address, self)
        self.store = self.scene.server.connect()
        await register_bookie(self.store, self.bookie_id, self.address, read_only=read_only)

    async def go(self, *, registered: bool = False) -> None:
        """Stop. `registered`: the registration stays."""
        if self.listener is not None:
            await self.listener.close()
            self.listener = None
        if self.store is not None and not registered:
            await self.store.close()

    @property
    def address(self) -> str:
        return f"{self.bookie_id}:1"

    def entries(self, ledger_id: int) -> dict[int, bytes]:
        return {entry_id: extract_entry(record) for entry_id, record in sorted(self.records.get(ledger_id, {}).items())}

    async def stream(self, peer: Peer, method: str, stream: Stream) -> None:
        assert method == "add"
        while (message := await stream.receive()) is not None:
            request = AddRequest.FromString(message)
            answers = []
            runs = decode_frame(request.frame, max_entry_bytes=MAX_RECORD_BYTES)
            self.frames.append(len(request.frame.entries))
            for run_, head in zip(runs, request.runs, strict=True):
                status = self._decide(run_.channel, head.recovery)
                if status == Status.OK:
                    stored = self.records.setdefault(run_.channel, {})
                    for entry_id, record in enumerate(run_.entries, run_.first):
                        check_record(record, run_.channel, entry_id)
                        assert stored.setdefault(entry_id, record) == record
                answers.append(
                    AddAnswer(ledger_id=run_.channel, first_entry_id=run_.first, count=len(run_.entries), status=status)
                )
            if self.holding:
                self.held += [(stream, answer) for answer in answers]
            else:
                await stream.send(AddAnswers(answers=answers).SerializeToString())

    def _decide(self, ledger_id: int, recovery: bool) -> Status:
        if ledger_id in self.fenced and not recovery:
            return Status.FENCED
        return self.status

    async def release(self) -> None:
        """Send the answers that were held."""
        self.holding = False
        held, self.held = self.held, []
        for stream, answer in held:
            await stream.send(AddAnswers(answers=[answer]).SerializeToString())

    async def call(self, peer: Peer, method: str, request: bytes) -> bytes:
        if method == "confirm":
            confirm = ConfirmRequest.FromString(request)
            status = self._decide(confirm.ledger_id, False)
            if status == Status.OK:
                self.confirmed[confirm.ledger_id] = confirm.last_add_confirmed
            return ConfirmAnswer(status=status).SerializeToString()
        if method == "last_add_confirmed":
            return LastAddConfirmedAnswer(status=Status.OK, last_add_confirmed=-1).SerializeToString()
        raise Refusal(Code.UNIMPLEMENTED, method)


class Scene:
    """Bookies b1, b2 …, a metadata server and clients. The bookies are registered while it is open."""

    def __init__(self, bookies: int = 4, settings: LedgerClientSettings = QUICK) -> None:
        self.clock = ManualClock()
        self.server = MemoryServer(self.clock)
        self.transport = InProcessTransport(self.clock)
        self.settings = settings
        self.bookies = {f"b{number}": FakeBookie(self, f"b{number}") for number in range(1, bookies + 1)}
        self.clients: list[LedgerClient] = []
        self.store = self.server.connect()

    async def __aenter__(self) -> Self:
        for bookie in self.bookies.values():
            await bookie.come()
        return self

    async def __aexit__(self, *_: object) -> None:
        for client in self.clients:
            await client.close()
        for bookie in self.bookies.values():
            await bookie.go()

    async def client(self, store: MemoryStore | None = None) -> LedgerClient:
        client = LedgerClient(
            store or self.store, self.transport, self.clock, SeededRandomness(len(self.clients)), self.settings
        )
        self.clients.append(client)
        await client.start()
        return client

    async def writer(self, ensemble: int = 3, write: int = 3, ack: int = 2) -> LedgerWriter:
        client = self.clients[0] if self.clients else await self.client()
        _, writer = await client.create(Striping(ensemble, write, ack), "a test")
        return writer

    def ensemble(self, writer: LedgerWriter) -> list[FakeBookie]:
        return [self.bookies[bookie_id] for bookie_id in writer.metadata.last_fragment.bookies]

    def spare(self, writer: LedgerWriter) -> FakeBookie:
        (spare,) = [one for name, one in self.bookies.items() if name not in writer.metadata.last_fragment.bookies]
        return spare

    async def settled(self, condition: Callable[[], bool], what: str = "it holds") -> None:
        """Wait until the condition holds."""
        for _ in range(2000):
            if condition():
                return
            await asyncio.sleep(0)
        await until(condition, what)

    async def idle(self) -> None:
        """Run the event loop until nothing more happens by itself."""
        for _ in range(300):
            await asyncio.sleep(0)


class Outcomes:
    """Appends entries, and records their outcomes in the order of the callbacks."""

    def __init__(self, writer: LedgerWriter) -> None:
        self.writer = writer
        self.all: list[int | AddFailed] = []

    def append(self, *entries: bytes) -> None:
        for entry in entries:
            self.writer.append(entry, self.all.append)

    @property
    def completed(self) -> list[int]:
        return [one for one in self.all if isinstance(one, int)]

    @property
    def failures(self) -> list[AddFailed]:
        return [one for one in self.all if isinstance(one, AddFailed)]
