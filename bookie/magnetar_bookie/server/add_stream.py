"""One `add` stream of a client: it receives frames of records, and sends results as ranges of entries.

All entries of a frame are decided in one step. The next frame is received when there is capacity for it. All results of
entries that became durable together are sent in one message.

A client in the same process may pass records by a function call instead (`in_process_adds.py`), and gets the results by
a callback. A call accepts only what can be decided at once: entries for which there is no capacity, or whose stored
record has to be read and compared, have to be sent in a frame.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from google.protobuf.message import DecodeError

from magnetar_bookie.in_process_adds import Answered
from magnetar_bookie.read.record import MAX_RECORD_BYTES
from magnetar_bookie.server.counters import BookieCounters
from magnetar_bookie.server.group_commit import GroupCommit
from magnetar_bookie.server.group_commit_rules import AddResult
from magnetar_bookie.server.ledger_rules import AddDecisions, DuplicateAdd, LedgerRules
from magnetar_bookie.server.record_reader import RecordReader
from magnetar_bookie.settings.server import BookieServerSettings
from magnetar_bookie.storage.interface import StorageFailed
from magnetar_protos.ledger_pb2 import AddAnswer, AddAnswers, AddRequest, AddRun
from magnetar_wire.errors import MalformedFrame, TooLarge
from magnetar_wire.frame import DecodedRun, decode_frame
from magnetar_wire.transport import Code, Refusal, Stream

__all__ = ["AddStream"]

_MAX_RESULTS_PER_MESSAGE: Final = 20_000
# Bounds of one read of stored records to compare. One record may exceed the bytes.
_MAX_COMPARED_RECORDS: Final = 64
_MAX_COMPARED_BYTES: Final = 1_048_576


class AddStream:
    def __init__(
        self,
        stream: Stream,
        rules: LedgerRules,
        commit: GroupCommit,
        reader: RecordReader,
        settings: BookieServerSettings,
        counters: BookieCounters,
    ) -> None:
        self._stream = stream
        self._rules = rules
        self._commit = commit
        self._reader = reader
        self._settings = settings
        self._counters = counters
        # Results that wait to be sent.
        self._results: list[AddResult] = []
        # How many results there were since the stream was opened, and how many of them were sent.
        self.result_count = 0
        self._sent_count = 0
        # Received entries without a result.
        self._undecided_entries = 0
        # Frames that were decided, and the callback of a client that doesn't get its results in messages.
        self._frames = 0
        self._on_answer: Answered | None = None
        # The stream broke: nothing can be sent any more.
        self._is_broken = False
        # What the sender waits for, and what the receiver waits for.
        self._has_results: asyncio.Future[None] | None = None
        self._has_sent: asyncio.Future[None] | None = None

    def has_sent(self, count: int) -> bool:
        """Return whether the first `count` results were sent, or can't be sent any more."""
        return self._is_broken or self._sent_count >= count

    async def serve(self) -> None:
        sender = asyncio.get_running_loop().create_task(self._send_results())
        self._stream.in_process_api = self
        try:
            while (message := await self._stream.receive()) is not None:
                runs = _decode_request(message)
                self._counters.adds += sum(len(run.entries) for run, _ in runs)
                self._counters.add_bytes += len(message)
                await self._commit.wait_for_capacity(self._settings.max_pending_bytes)
                await self._add_frame(runs)
                self._frames += 1
                while len(self._results) > self._settings.max_waiting_answers and not self._is_broken:
                    await self._wait_sent()
            while (self._undecided_entries or self._results) and not self._is_broken:
                await self._wait_sent()
        finally:
            self._is_broken = True
            sender.cancel()
            await asyncio.wait([sender])
            if not sender.cancelled():
                sender.exception()  # the stream broke: the receiver gets that error, too

    def queue_result(self, result: AddResult) -> None:
        """Queue a result to be sent."""
        self._counters.count_results(result.status, result.count)
        if self._is_broken:
            return
        self._undecided_entries -= result.count
        self.result_count += 1
        if self._on_answer is not None:
            self._sent_count += 1
            self._on_answer(result.ledger_id, result.first_entry_id, result.count, result.status)
            self._wake_receiver()
            return
        self._results.append(result)
        if self._has_results is not None and not self._has_results.done():
            self._has_results.set_result(None)

    # `InProcessAdds`

    def set_answer_callback(self, on_answer: Answered) -> None:
        self._on_answer = on_answer

    def can_add(self, frames: int) -> bool:
        has_capacity = self._rules.pending_bytes <= self._settings.max_pending_bytes
        return has_capacity and frames == self._frames and not self._is_broken and self._commit.failure is None

    def add_run(
        self, ledger_id: int, master_key: bytes, first: int, records: Sequence[bytes], *, recovery: bool
    ) -> Sequence[int]:
        try:
            decisions = self._rules.add_run(ledger_id, master_key, first, records, recovery, self)
        except StorageFailed as error:
            self._commit.fail(error)
            return range(first, first + len(records))  # the frame with them fails, and ends the stream
        left = [add.entry_id for add in decisions.duplicates]
        self._counters.adds += len(records) - len(left)
        self._counters.add_bytes += sum(map(len, records)) - sum([len(add.record) for add in decisions.duplicates])
        self._undecided_entries += len(records) - len(left)
        for result in decisions.results:
            self.queue_result(result)
        return left

    def commit_adds(self) -> None:
        self._commit.start_if_idle()

    async def _add_frame(self, runs: Sequence[tuple[DecodedRun, AddRun]]) -> None:
        """Decide on all entries of a frame, at once if none is stored already."""
        duplicates: list[DuplicateAdd] = []
        for run, description in runs:
            self._undecided_entries += len(run.entries)
            decisions = self._rules.add_run(
                run.channel, description.master_key, run.first, run.entries, description.recovery, self
            )
            self._handle_decisions(decisions, duplicates)
        self._commit.start_if_idle()
        while duplicates:
            undecided: list[DuplicateAdd] = []
            begin = 0
            while begin < len(duplicates):
                adds = _take_of_one_ledger(duplicates, begin)
                stored = await self._reader.read_unchecked(
                    adds[0].ledger_id, [add.entry_id for add in adds], _MAX_COMPARED_BYTES
                )
                self._commit.check_not_failed()
                for add, record in zip(adds, stored, strict=False):
                    self._handle_decisions(self._rules.decide_duplicate(add, record, self), undecided)
                self._commit.start_if_idle()
                begin += len(stored)
            duplicates = undecided

    def _handle_decisions(self, decisions: AddDecisions, duplicates: list[DuplicateAdd]) -> None:
        duplicates += decisions.duplicates
        for result in decisions.results:
            self.queue_result(result)

    async def _send_results(self) -> None:
        try:
            while True:
                while not self._results:
                    self._has_results = asyncio.get_running_loop().create_future()
                    await self._has_results
                self._commit.check_not_failed()
                results = self._results[:_MAX_RESULTS_PER_MESSAGE]
                await self._stream.send(_encode_results(results))
                del self._results[: len(results)]
                self._sent_count += len(results)
                self._wake_receiver()
        finally:
            self._is_broken = True
            self._wake_receiver()

    async def _wait_sent(self) -> None:
        self._has_sent = asyncio.get_running_loop().create_future()
        await self._has_sent

    def _wake_receiver(self) -> None:
        if self._has_sent is not None and not self._has_sent.done():
            self._has_sent.set_result(None)


def _decode_request(message: bytes) -> list[tuple[DecodedRun, AddRun]]:
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


def _encode_results(results: Sequence[AddResult]) -> bytes:
    """Encode a message, with one answer for consecutive entries of the same status."""
    answers: list[AddAnswer] = []
    for result in results:
        last = answers[-1] if answers else None
        if (
            last is not None
            and last.ledger_id == result.ledger_id
            and last.status == result.status
            and last.first_entry_id + last.count == result.first_entry_id
        ):
            last.count += result.count
        else:
            answers.append(
                AddAnswer(
                    ledger_id=result.ledger_id,
                    first_entry_id=result.first_entry_id,
                    count=result.count,
                    status=result.status,
                )
            )
    return AddAnswers(answers=answers).SerializeToString()


def _take_of_one_ledger(adds: Sequence[DuplicateAdd], begin: int) -> Sequence[DuplicateAdd]:
    """Return the adds from `begin` on that are of the same ledger, up to the bound of one read."""
    end = begin + 1
    while end < min(len(adds), begin + _MAX_COMPARED_RECORDS) and adds[end].ledger_id == adds[begin].ledger_id:
        end += 1
    return adds[begin:end]
