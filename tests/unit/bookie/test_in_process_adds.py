"""Adds handed to a bookie in the same process: what goes in a frame all the same, in which order, and the end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any

from magnetar_bookie.in_process_adds import InProcessAdds
from magnetar_bookie.ledger.add_channel import AddChannel
from magnetar_bookie.settings.ledger_client import LedgerClientSettings
from magnetar_bookie.settings.server import BookieServerSettings
from magnetar_bookie.storage.interface import StorageFailed
from magnetar_protos.ledger_pb2 import Status
from magnetar_wire.transport import Stream
from tests.running import until
from tests.unit.bookie.bookie_client import KEY, OneBookie, record


class Outcomes:
    """A ledger's sink: each entry's answers, and the failures."""

    def __init__(self) -> None:
        self.answers: dict[int, list[int]] = {}
        self.order: list[int] = []
        self.failures: list[str] = []
        # Each notification of lag, and "" for each that it is over.
        self.lags: list[str] = []

    def on_answer(self, bookie_id: str, first_entry_id: int, count: int, status: int) -> None:
        for entry_id in range(first_entry_id, first_entry_id + count):
            self.answers.setdefault(entry_id, []).append(status)
            self.order.append(entry_id)

    def on_bookie_failed(self, bookie_id: str, reason: str) -> None:
        self.failures.append(reason)

    def on_bookie_lags(self, bookie_id: str, reason: str) -> None:
        self.lags.append(reason)

    def on_bookie_caught_up(self, bookie_id: str) -> None:
        self.lags.append("")


class Counted:
    """A stream whose messages are counted."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self.sent = self.sent_bytes = 0
        self.receive, self.finish, self.cancel = stream.receive, stream.finish, stream.cancel

    @property
    def in_process_api(self) -> object | None:
        return self._stream.in_process_api

    async def send(self, message: bytes) -> None:
        self.sent += 1
        self.sent_bytes += len(message)
        await self._stream.send(message)


class Scene:
    def __init__(self, one: OneBookie) -> None:
        self.one = one
        self.streams: list[Counted] = []
        self.tasks: list[asyncio.Task[None]] = []
        self.outcomes = Outcomes()
        self.channel = AddChannel("b1", self._open, self._spawn, one.clock, LedgerClientSettings())
        self.channel.attach(1, self.outcomes)

    def _open(self) -> Any:
        self.streams.append(Counted(self.one.adds()))
        return self.streams[-1]

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self.tasks.append(asyncio.get_running_loop().create_task(work))

    @property
    def messages(self) -> int:
        return sum(stream.sent for stream in self.streams)

    def send(self, first: int, *entries: bytes) -> None:
        records = [record(1, entry_id, entry, first - 1) for entry_id, entry in enumerate(entries, first)]
        self.channel.send(1, KEY, first, records)

    async def answered(self, *entry_ids: int, times: int = 1) -> None:
        await until(
            lambda: all(len(self.outcomes.answers.get(one, ())) >= times for one in entry_ids),
            f"{entry_ids} are answered",
        )


@asynccontextmanager
async def running_scene(settings: BookieServerSettings | None = None) -> AsyncIterator[Scene]:
    """Yield a scene whose first entry is answered."""
    async with OneBookie(settings) as one:
        scene = Scene(one)
        scene.send(0, b"the first")
        await scene.answered(0)
        yield scene
        scene.channel.close()
        for task in scene.tasks:
            await task


async def test_adds_after_the_first_frame_are_passed_in_process() -> None:
    async with running_scene() as scene:
        frames = scene.messages
        scene.send(1, b"a", b"b")
        scene.send(3, b"c")
        await scene.answered(1, 2, 3)
        scene.send(4, b"d")
        await scene.answered(4)
        assert scene.messages == frames
        assert scene.outcomes.answers == {entry_id: [Status.OK] for entry_id in range(5)}
        assert list((await scene.one.read(1, 0, 4)).records) == [
            record(1, entry_id, entry, confirmed)
            for entry_id, (entry, confirmed) in enumerate(
                [(b"the first", -1), (b"a", 0), (b"b", 0), (b"c", 2), (b"d", 3)]
            )
        ]
        counters = scene.one.bookie.counters
        assert (counters.adds, scene.channel.unanswered_bytes) == (5, 0)


async def test_duplicate_add_and_all_adds_after_it_use_a_frame() -> None:
    """LED-7: the same again is taken, and other bytes are a conflict, however they come."""

    async with running_scene() as scene:
        frames, counters = scene.messages, scene.one.bookie.counters
        bytes_before = counters.add_bytes - scene.streams[0].sent_bytes
        scene.send(0, b"the first", b"new")
        scene.send(2, b"behind it")
        await scene.answered(0, times=2)
        await scene.answered(1, 2)
        assert scene.messages > frames
        in_process_bytes = len(record(1, 1, b"new", -1))
        assert (counters.adds, counters.add_bytes) == (4, bytes_before + scene.streams[0].sent_bytes + in_process_bytes)
        scene.send(2, b"other bytes", b"another")
        await scene.answered(2, times=2)
        await scene.answered(3)
        assert scene.outcomes.answers == {
            0: [Status.OK, Status.OK],
            1: [Status.OK],
            2: [Status.OK, Status.CONFLICT],
            3: [Status.OK],
        }
        assert list((await scene.one.read(1, 2, 2)).records) == [record(1, 2, b"behind it", 1)]
        frames = scene.messages
        scene.send(4, b"in process again")
        await scene.answered(4)
        assert scene.messages == frames


async def test_adds_above_capacity_wait_in_frames() -> None:
    async with running_scene(BookieServerSettings(max_pending_bytes=5000)) as scene:
        frames = scene.messages
        for entry_id in range(1, 200):
            scene.send(entry_id, b"x" * 500)
            if not entry_id % 7:
                await asyncio.sleep(0)
                assert scene.one.bookie.pending_bytes <= 5_000 + 14 * 800
        await scene.answered(*range(1, 200))
        assert scene.messages > frames
        assert scene.outcomes.order == list(range(200))
        assert set(map(tuple, scene.outcomes.answers.values())) == {(Status.OK,)}


async def test_refusals_are_returned_in_process() -> None:
    async with running_scene() as scene:
        await scene.one.fence(1)
        frames = scene.messages
        scene.send(1, b"too late", b"too")
        await scene.answered(1, 2)
        assert scene.outcomes.answers == {0: [Status.OK], 1: [Status.FENCED], 2: [Status.FENCED]}
        assert scene.messages == frames


async def test_stopped_bookie_is_reported_once_as_a_failure() -> None:
    async with running_scene() as scene:
        scene.one.disk.fail_next_sync()
        scene.send(1, b"in flight")
        await scene.one.bookie.wait_for_failure()
        assert scene.outcomes.failures == []
        await scene.one.stop()
        await until(lambda: bool(scene.outcomes.failures), "the failure is reported")
        assert len(scene.outcomes.failures) == 1
        assert scene.outcomes.answers == {0: [Status.OK]}
        await scene.one.start()
        scene.channel.reset_backoff()  # no pause
        scene.send(1, b"in flight")
        await scene.answered(1)
        assert len(scene.streams) == 2


async def test_disk_failure_during_an_add_ends_the_stream() -> None:
    async with running_scene() as scene:

        def broken(*_: object) -> Sequence[object]:
            raise StorageFailed("the index can't be read")

        scene.one.bookie._rules.add_run = broken  # type: ignore[method-assign, assignment]
        scene.send(1, b"a")
        await until(lambda: bool(scene.outcomes.failures), "the failure is reported")
        assert scene.outcomes.answers == {0: [Status.OK]}
        assert isinstance(scene.one.bookie.failure, StorageFailed)


async def test_a_fault_within_the_bookie_breaks_the_stream_at_once() -> None:
    async with running_scene() as scene:
        whole = scene.one.bookie._rules.add_run

        def broken(*_: object) -> Sequence[object]:
            raise ValueError("a bug")

        scene.one.bookie._rules.add_run = broken  # type: ignore[method-assign, assignment]
        scene.send(1, b"a")
        await until(lambda: bool(scene.outcomes.failures), "the failure is reported")
        assert "a bug" in scene.outcomes.failures[0]
        scene.one.bookie._rules.add_run = whole  # type: ignore[method-assign]
        scene.channel.reset_backoff()  # no pause
        scene.send(1, b"a")
        await scene.answered(1)


async def test_callback_error_breaks_the_stream_but_not_the_bookie() -> None:
    async with running_scene() as scene:

        class Faulty(Outcomes):
            def on_answer(self, bookie_id: str, first_entry_id: int, count: int, status: int) -> None:
                raise ValueError("a bug of the client's")

        detach = scene.channel.attach(1, Faulty())
        scene.send(1, b"a")
        await scene.answered(1)
        detach()
        await until(lambda: all(task.done() for task in scene.tasks), "the stream breaks")
        assert scene.one.bookie.failure is None
        scene.send(2, b"b")
        await scene.answered(2)
        assert len(scene.streams) == 2


async def test_adds_are_not_requeued_when_a_response_breaks_the_stream() -> None:
    async with running_scene() as scene:

        class Breaks(Outcomes):
            def on_answer(self, bookie_id: str, first_entry_id: int, count: int, status: int) -> None:
                if status == Status.BAD_RECORD:
                    scene.channel._fail(scene.channel._stream, "it is enough")

        detach = scene.channel.attach(1, Breaks())
        # The first has to be compared, and the second is refused at once.
        scene.channel.send(1, KEY, 0, [record(1, 0, b"the first", -1), b"bad"])
        await until(lambda: bool(scene.outcomes.failures), "the failure is reported")
        detach()
        scene.channel.reset_backoff()  # no pause
        scene.send(2, b"c")
        await scene.answered(2)
        assert scene.outcomes.answers == {0: [Status.OK], 1: [Status.BAD_RECORD], 2: [Status.OK]}
        assert len(scene.streams) == 2


async def test_finished_stream_ends_after_in_process_adds_are_answered() -> None:
    async with OneBookie() as one:
        stream, answers = one.adds(), list[tuple[int, ...]]()
        await until(lambda: stream.in_process_api is not None, "the bookie serves the stream")
        adds = stream.in_process_api
        assert isinstance(adds, InProcessAdds)
        adds.set_answer_callback(lambda *answer: answers.append(answer))
        assert not adds.add_run(1, KEY, 0, [record(1, 0)], recovery=False)
        adds.commit_adds()
        await stream.finish()
        assert await stream.receive() is None
        assert answers == [(1, 0, 1, Status.OK)]
