"""One `add` stream: frames of records in, ranges of answers out.

A frame is decided on as a whole, in one step, when there is room in line for it; the stream is not read on before. The
answers of whatever became durable together leave in one message.

A client in this process may hand records over instead (`in_process_adds.py`), and gets its answers by a call. Only what
can be decided on at once is taken so: what there is no room for, or has to be read and compared, comes in a frame.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from google.protobuf.message import DecodeError

from magnetar_bookie.core.commit_group import Answer
from magnetar_bookie.core.counters import BookieCounters
from magnetar_bookie.core.ledger_replicas import Decisions, LedgerReplicas, ToCompare
from magnetar_bookie.in_process_adds import Answered
from magnetar_bookie.read.record import MAX_RECORD_BYTES
from magnetar_bookie.server.group_commit import GroupCommit
from magnetar_bookie.server.record_reader import RecordReader
from magnetar_bookie.settings.server import BookieServerSettings
from magnetar_bookie.storage.interface import StorageFailed
from magnetar_protos.ledger_pb2 import AddAnswer, AddAnswers, AddRequest, AddRun
from magnetar_wire.errors import MalformedFrame, TooLarge
from magnetar_wire.frame import DecodedRun, decode_frame
from magnetar_wire.transport import Code, Refusal, Stream

__all__ = ["AddStream"]

_ANSWERS_PER_MESSAGE: Final = 20_000
# Held records that are read at a time to be compared: so many, and up to so many bytes and one record.
_COMPARED_TOGETHER: Final = 64
_COMPARED_BYTES: Final = 1_048_576


class AddStream:
    def __init__(
        self,
        stream: Stream,
        replicas: LedgerReplicas,
        commit: GroupCommit,
        reader: RecordReader,
        settings: BookieServerSettings,
        counters: BookieCounters,
    ) -> None:
        self._stream = stream
        self._replicas = replicas
        self._commit = commit
        self._reader = reader
        self._settings = settings
        self._counters = counters
        # Answers that have not left yet.
        self._answers: list[Answer] = []
        # How many there have been in all, and how many of them have left.
        self.all_answers = 0
        self._sent_answers = 0
        # Entries that were taken and not answered.
        self._open = 0
        # Frames that were decided on, and where answers go that don't leave as messages.
        self._frames = 0
        self._answered_in_process: Answered | None = None
        # The sender is gone: nothing more can be said.
        self._broken = False
        # What the sender waits for, and what the receiver does.
        self._to_send: asyncio.Future[None] | None = None
        self._sent: asyncio.Future[None] | None = None

    def has_sent(self, answers: int) -> bool:
        """So many answers, the first ones, have left; or nobody takes them any more."""
        return self._broken or self._sent_answers >= answers

    async def serve(self) -> None:
        sender = asyncio.get_running_loop().create_task(self._send())
        self._stream.in_process_api = self
        try:
            while (message := await self._stream.receive()) is not None:
                runs = _decode(message)
                self._counters.adds += sum(len(run.entries) for run, _ in runs)
                self._counters.add_bytes += len(message)
                await self._commit.room(self._settings.max_pending_bytes)
                await self._take(runs)
                self._frames += 1
                while len(self._answers) > self._settings.max_waiting_answers and not self._broken:
                    await self._wait_sent()
            while (self._open or self._answers) and not self._broken:
                await self._wait_sent()
        finally:
            self._broken = True
            sender.cancel()
            await asyncio.wait([sender])
            if not sender.cancelled():
                sender.exception()  # the stream broke: the receiver meets that too

    def answered(self, answer: Answer) -> None:
        """Taken by the sender when it comes to it."""
        self._counters.answered(answer.status, answer.count)
        if self._broken:
            return
        self._open -= answer.count
        self.all_answers += 1
        if self._answered_in_process is not None:
            self._sent_answers += 1
            self._answered_in_process(answer.ledger_id, answer.first_entry_id, answer.count, answer.status)
            self._wake_receiver()
            return
        self._answers.append(answer)
        if self._to_send is not None and not self._to_send.done():
            self._to_send.set_result(None)

    # `InProcessAdds`

    def begin(self, answered: Answered) -> None:
        self._answered_in_process = answered

    def ready(self, frames: int) -> bool:
        room = self._replicas.pending_bytes <= self._settings.max_pending_bytes
        return room and frames == self._frames and not self._broken and self._commit.failed is None

    def take(
        self, ledger_id: int, master_key: bytes, first: int, records: Sequence[bytes], *, recovery: bool
    ) -> Sequence[int]:
        try:
            decisions = self._replicas.add_run(ledger_id, master_key, first, records, recovery, self)
        except StorageFailed as error:
            self._commit.fail(error)
            return range(first, first + len(records))  # to meet the failure where it ends the stream
        left = [add.entry_id for add in decisions.to_compare]
        self._counters.adds += len(records) - len(left)
        self._counters.add_bytes += sum(map(len, records)) - sum([len(add.record) for add in decisions.to_compare])
        self._open += len(records) - len(left)
        for answer in decisions.answers:
            self.answered(answer)
        return left

    def taken(self) -> None:
        self._commit.kick()

    async def _take(self, runs: Sequence[tuple[DecodedRun, AddRun]]) -> None:
        to_compare: list[ToCompare] = []
        for run, said in runs:
            self._open += len(run.entries)
            decisions = self._replicas.add_run(
                run.channel, said.master_key, run.first, run.entries, said.recovery, self
            )
            self._decided(decisions, to_compare)
        self._commit.kick()
        while to_compare:
            again: list[ToCompare] = []
            at = 0
            while at < len(to_compare):
                together = _of_one_ledger(to_compare, at)
                asked = [add.entry_id for add in together]
                held = await self._reader.held(together[0].ledger_id, asked, _COMPARED_BYTES)
                self._commit.check()
                for add, record in zip(together, held, strict=False):
                    self._decided(self._replicas.compared(add, record, self), again)
                self._commit.kick()
                at += len(held)
            to_compare = again

    def _decided(self, decisions: Decisions, to_compare: list[ToCompare]) -> None:
        to_compare += decisions.to_compare
        for answer in decisions.answers:
            self.answered(answer)

    async def _send(self) -> None:
        try:
            while True:
                while not self._answers:
                    self._to_send = asyncio.get_running_loop().create_future()
                    await self._to_send
                self._commit.check()
                leaving = self._answers[:_ANSWERS_PER_MESSAGE]
                await self._stream.send(_encode(leaving))
                del self._answers[: len(leaving)]
                self._sent_answers += len(leaving)
                self._wake_receiver()
        finally:
            self._broken = True
            self._wake_receiver()

    async def _wait_sent(self) -> None:
        self._sent = asyncio.get_running_loop().create_future()
        await self._sent

    def _wake_receiver(self) -> None:
        if self._sent is not None and not self._sent.done():
            self._sent.set_result(None)


def _decode(message: bytes) -> list[tuple[DecodedRun, AddRun]]:
    try:
        request = AddRequest.FromString(message)
        runs = decode_frame(request.frame, max_entry_bytes=MAX_RECORD_BYTES)
    except (DecodeError, MalformedFrame, TooLarge) as error:
        raise Refusal(Code.INVALID_ARGUMENT, f"an add can't be decoded: {error}") from None
    if len(runs) != len(request.runs):
        raise Refusal(
            Code.INVALID_ARGUMENT,
            f"a frame of {len(runs)} runs has {len(request.runs)} descriptions of runs: one for each is needed",
        )
    return list(zip(runs, request.runs, strict=True))


def _encode(answers: Sequence[Answer]) -> bytes:
    """Neighbours that were decided alike become one."""
    merged: list[AddAnswer] = []
    for answer in answers:
        last = merged[-1] if merged else None
        if (
            last is not None
            and last.ledger_id == answer.ledger_id
            and last.status == answer.status
            and last.first_entry_id + last.count == answer.first_entry_id
        ):
            last.count += answer.count
        else:
            merged.append(
                AddAnswer(
                    ledger_id=answer.ledger_id,
                    first_entry_id=answer.first_entry_id,
                    count=answer.count,
                    status=answer.status,
                )
            )
    return AddAnswers(answers=merged).SerializeToString()


def _of_one_ledger(adds: Sequence[ToCompare], begin: int) -> Sequence[ToCompare]:
    """Those from this one on that are of the same ledger, as many as are read at a time."""
    end = begin + 1
    while end < min(len(adds), begin + _COMPARED_TOGETHER) and adds[end].ledger_id == adds[begin].ledger_id:
        end += 1
    return adds[begin:end]
