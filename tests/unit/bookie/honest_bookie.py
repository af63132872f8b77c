"""A small bookie in memory, which follows protocol.md until a test has it fail or answer wrongly."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from magnetar_bookie.read.record import MAX_RECORD_BYTES, NO_ENTRY, BadRecord, check_record, encode_record
from magnetar_protos import ledger_pb2 as pb
from magnetar_wire.clock import Clock
from magnetar_wire.frame import decode_frame
from magnetar_wire.transport import Code, Disconnected, Peer, Refusal, Stream

READ_LIMIT = 1_048_576


@dataclass
class HeldLedger:
    records: dict[int, bytes] = field(default_factory=dict)
    fenced: bool = False
    last_add_confirmed: int = NO_ENTRY
    deleted: bool = False
    limbo: bool = False


class HonestBookie:
    """A `Service`. What was written is on its disk at once."""

    def __init__(self, bookie_id: str, clock: Clock) -> None:
        self.bookie_id = bookie_id
        self._clock = clock
        self.ledgers: dict[int, HeldLedger] = {}
        # The calls, in order.
        self.calls: list[tuple[str, object]] = []
        # Methods that are never answered, and those that fail.
        self.hanging: set[str] = set()
        self.failing: set[str] = set()
        # Changes answers before they are sent.
        self.lie: Callable[[pb.ReadRequest, pb.ReadAnswer], pb.ReadAnswer] = lambda _, answer: answer
        # Is called before anything is done: a test's chance to come in between.
        self.before: Callable[[str], None] = lambda _: None
        # The first recovery read comes with the answer to a fence, which a bookie may leave out.
        self.reads_with_fences = False
        self._changed = asyncio.Event()
        # Adds wait while it is not set.
        self._adds = asyncio.Event()
        self._adds.set()

    def hold(self) -> None:
        """Add nothing until `resume`."""
        self._adds.clear()

    def resume(self) -> None:
        self._adds.set()

    def ledger(self, ledger_id: int) -> HeldLedger:
        return self.ledgers.setdefault(ledger_id, HeldLedger())

    def reads(self) -> list[pb.ReadRequest]:
        return [request for _, request in self.calls if isinstance(request, pb.ReadRequest)]

    def keep(self, ledger_id: int, record: bytes) -> None:
        """Store a record."""
        entry_id = int.from_bytes(record[8:16], "big")
        held = self.ledger(ledger_id)
        held.records[entry_id] = record
        held.last_add_confirmed = max(
            held.last_add_confirmed, check_record(record, ledger_id, entry_id).last_add_confirmed
        )
        self._wake()

    def damage(self, ledger_id: int, entry_id: int) -> None:
        record = self.ledger(ledger_id).records[entry_id]
        self.ledger(ledger_id).records[entry_id] = record[:-1] + bytes([record[-1] ^ 1])

    def confirm(self, ledger_id: int, last_add_confirmed: int) -> None:
        held = self.ledger(ledger_id)
        held.last_add_confirmed = max(held.last_add_confirmed, last_add_confirmed)
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed.clear()

    async def call(self, peer: Peer, method: str, request: bytes) -> bytes:
        if method == "read":
            return (await self.read(pb.ReadRequest.FromString(request))).SerializeToString()
        if method == "fence":
            return (await self._fence(pb.FenceRequest.FromString(request))).SerializeToString()
        if method == "last_add_confirmed":
            read_request = pb.LastAddConfirmedRequest.FromString(request)
            return (await self._last_add_confirmed(read_request)).SerializeToString()
        raise Refusal(Code.UNIMPLEMENTED, method)

    async def _begin(self, method: str, request: object) -> None:
        self.calls.append((method, request))
        self.before(method)
        if method in self.hanging:
            await asyncio.get_running_loop().create_future()
        if method == "add":
            await self._adds.wait()
        if method in self.failing:
            raise Disconnected(f"{self.bookie_id} is not to be reached")

    async def read(self, request: pb.ReadRequest) -> pb.ReadAnswer:
        await self._begin("read", request)
        return self._read(request)

    def _read(self, request: pb.ReadRequest) -> pb.ReadAnswer:
        held = self.ledger(request.ledger_id)
        if held.deleted:
            return pb.ReadAnswer(status=pb.DELETED)
        if request.fence:
            held.fenced = True
        answer = pb.ReadAnswer(status=pb.OK, last_add_confirmed=held.last_add_confirmed)
        size = 0
        for entry_id in range(request.first_entry_id, request.last_entry_id + 1, request.step):
            record = held.records.get(entry_id)
            if record is None:
                (answer.unknown if held.limbo else answer.absent).append(entry_id)
            elif not _whole(record, request.ledger_id, entry_id):
                answer.damaged.append(entry_id)
            else:
                size += len(record)
                if answer.records and size > min(request.max_bytes, READ_LIMIT):
                    break
                answer.records.append(record)
            answer.next_entry_id = entry_id + 1
        return self.lie(request, answer)

    async def _fence(self, request: pb.FenceRequest) -> pb.FenceAnswer:
        await self._begin("fence", request)
        held = self.ledger(request.ledger_id)
        if held.deleted:
            return pb.FenceAnswer(status=pb.DELETED)
        held.fenced = True
        answer = pb.FenceAnswer(status=pb.OK, last_add_confirmed=held.last_add_confirmed)
        if self.reads_with_fences:
            first = held.last_add_confirmed + 1
            last = first + request.read_entries - 1
            read_request = pb.ReadRequest(
                ledger_id=request.ledger_id,
                first_entry_id=first,
                last_entry_id=last,
                step=1,
                max_bytes=request.max_bytes,
            )
            answer.read.CopyFrom(self._read(read_request))
        return answer

    async def _last_add_confirmed(self, request: pb.LastAddConfirmedRequest) -> pb.LastAddConfirmedAnswer:
        await self._begin("last_add_confirmed", request)
        held = self.ledger(request.ledger_id)
        until = self._clock.monotonic() + request.wait_ms / 1000
        timer = self._clock.call_later(request.wait_ms / 1000, self._wake)
        while held.last_add_confirmed <= request.above and self._clock.monotonic() < until:
            await self._changed.wait()
        timer.cancel()
        return pb.LastAddConfirmedAnswer(status=pb.OK, last_add_confirmed=held.last_add_confirmed)

    async def stream(self, peer: Peer, method: str, stream: Stream) -> None:
        assert method == "add"
        while (message := await stream.receive()) is not None:
            await self._begin("add", None)
            request = pb.AddRequest.FromString(message)
            answers = pb.AddAnswers()
            runs = zip(decode_frame(request.frame, max_entry_bytes=MAX_RECORD_BYTES), request.runs, strict=True)
            for run, terms in runs:
                for entry_id, record in enumerate(run.entries, run.first):
                    status = self._add(run.channel, entry_id, record, recovery=terms.recovery)
                    answers.answers.add(ledger_id=run.channel, first_entry_id=entry_id, count=1, status=status)
            await stream.send(answers.SerializeToString())

    def _add(self, ledger_id: int, entry_id: int, record: bytes, *, recovery: bool) -> pb.Status:
        held = self.ledger(ledger_id)
        if held.deleted:
            return pb.DELETED
        if not _whole(record, ledger_id, entry_id):
            return pb.BAD_RECORD
        if not recovery and (held.limbo or held.fenced):
            return pb.LIMBO if held.limbo else pb.FENCED
        there = held.records.get(entry_id)
        if there is not None and there != record and _whole(there, ledger_id, entry_id):
            return pb.CONFLICT
        self.keep(ledger_id, record)
        return pb.OK


def _whole(record: bytes, ledger_id: int, entry_id: int) -> bool:
    try:
        check_record(record, ledger_id, entry_id)
    except BadRecord:
        return False
    return True


def entry(entry_id: int) -> bytes:
    return b"entry %d" % entry_id


def length_up_to(entry_id: int) -> int:
    return sum(len(entry(each)) for each in range(entry_id + 1))


def record_of(ledger_id: int, entry_id: int, last_add_confirmed: int | None = None) -> bytes:
    """What the writer of these tests' ledgers has made of the entry. Its LAC is the entry before, unless stated."""
    confirmed = entry_id - 1 if last_add_confirmed is None else last_add_confirmed
    return encode_record(ledger_id, entry_id, confirmed, length_up_to(entry_id), entry(entry_id))
