"""One stream of adds: frames, breaks, timeouts, bounds, and what reaches the ledgers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from typing import Any, Self

import pytest

from magnetar_bookie.ledger.add_channel import AddChannel
from magnetar_bookie.settings.ledger_client import LedgerClientSettings
from magnetar_protos.ledger_pb2 import AddAnswer, AddAnswers, AddRequest, Status
from magnetar_testing.clock import ManualClock
from magnetar_wire.frame import decode_frame
from magnetar_wire.transport import Disconnected


class FakeStream:
    """The test is at its other end."""

    def __init__(self) -> None:
        self.in_process_api: object | None = None
        self.sent: list[AddRequest] = []
        self.incoming: asyncio.Queue[bytes | Exception | None] = asyncio.Queue()
        # Cleared: the other end does not take anything.
        self.open = asyncio.Event()
        self.open.set()
        self.cancelled = False

    async def send(self, message: bytes) -> None:
        await self.open.wait()
        if self.cancelled:
            raise Disconnected("the stream was cancelled")
        self.sent.append(AddRequest.FromString(message))

    async def receive(self) -> bytes | None:
        got = await self.incoming.get()
        if isinstance(got, Exception):
            raise got
        return got

    async def finish(self) -> None:
        raise AssertionError("nobody finishes it")

    def cancel(self) -> None:
        self.cancelled = True
        self.open.set()
        self.incoming.put_nowait(Disconnected("the stream was cancelled"))

    def answer(self, *answers: tuple[int, int, int]) -> None:
        message = AddAnswers(
            answers=[
                AddAnswer(ledger_id=ledger_id, first_entry_id=first, count=count, status=Status.OK)
                for ledger_id, first, count in answers
            ]
        )
        self.incoming.put_nowait(message.SerializeToString())

    @property
    def entries(self) -> list[list[tuple[int, int]]]:
        """Of each frame: (ledger, entry)."""
        return [
            [
                (one.channel, entry_id)
                for one in decode_frame(message.frame)
                for entry_id in _ids(one.first, one.entries)
            ]
            for message in self.sent
        ]


def _ids(first: int, entries: list[bytes]) -> range:
    return range(first, first + len(entries))


class Sink:
    def __init__(self) -> None:
        self.answers: list[tuple[int, int]] = []
        self.failures: list[str] = []
        # Each notification of lag, and "" for each that it is over.
        self.lags: list[str] = []

    def on_answer(self, bookie_id: str, first_entry_id: int, count: int, status: int) -> None:
        self.answers.append((first_entry_id, count))

    def on_bookie_failed(self, bookie_id: str, reason: str) -> None:
        self.failures.append(reason)

    def on_bookie_lags(self, bookie_id: str, reason: str) -> None:
        self.lags.append(reason)

    def on_bookie_caught_up(self, bookie_id: str) -> None:
        self.lags.append("")


class Bench:
    """A channel and its streams. Leaving the bench closes the channel and awaits its tasks."""

    def __init__(self, settings: LedgerClientSettings | None = None, *, recovery: bool = False) -> None:
        self.clock = ManualClock()
        self.streams: list[FakeStream] = []
        self.tasks: list[asyncio.Task[None]] = []
        self.channel = AddChannel(
            "b1", self._open, self._spawn, self.clock, settings or LedgerClientSettings(), recovery=recovery
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.channel.close()
        for task in self.tasks:
            await task

    def _open(self) -> FakeStream:
        self.streams.append(FakeStream())
        return self.streams[-1]

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self.tasks.append(asyncio.get_running_loop().create_task(work))

    def send(self, ledger_id: int, *entry_ids: int, size: int = 10) -> None:
        for entry_id in entry_ids:
            self.channel.send(ledger_id, b"key", entry_id, [b"x" * size])

    def sink(self, ledger_id: int) -> Sink:
        sink = Sink()
        self.channel.attach(ledger_id, sink)
        return sink

    async def settle(self) -> None:
        for _ in range(20):
            await asyncio.sleep(0)


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    """A channel with the default settings."""
    async with Bench() as bench:
        yield bench


async def test_adds_queued_during_a_send_share_the_next_frame(bench: Bench) -> None:
    bench.send(1, 0)
    bench.send(2, 0)
    bench.send(1, 1)
    await bench.settle()
    (stream,) = bench.streams
    stream.open.clear()
    bench.send(1, 2)
    await bench.settle()
    bench.send(1, 3, 4)
    bench.send(2, 1)
    stream.open.set()
    await bench.settle()
    assert stream.entries == [[(1, 0), (2, 0), (1, 1)], [(1, 2)], [(1, 3), (1, 4), (2, 1)]]
    assert [len(message.runs) for message in stream.sent] == [3, 1, 2]
    assert all(run.master_key == b"key" and not run.recovery for message in stream.sent for run in message.runs)


async def test_answers_reach_the_ledgers_that_they_are_for(bench: Bench) -> None:
    one, two, other = bench.sink(1), bench.sink(2), bench.sink(1)
    bench.send(1, 0, 1)
    bench.send(2, 0)
    await bench.settle()
    bench.streams[0].answer((1, 0, 2), (2, 0, 1), (3, 0, 1))
    await bench.settle()
    assert one.answers == other.answers == [(0, 2)]
    assert two.answers == [(0, 1)]
    assert bench.channel.unanswered_bytes == 0


async def test_broken_stream_is_reported_once_and_then_ignored(bench: Bench) -> None:
    """An answer that is in flight when the stream breaks is not delivered."""
    one, two, idle = bench.sink(1), bench.sink(2), bench.sink(3)
    bench.send(1, 0, 1)
    bench.send(2, 0)
    await bench.settle()
    bench.streams[0].answer((1, 0, 1))
    bench.streams[0].incoming.put_nowait(Disconnected("lost"))
    bench.streams[0].answer((1, 1, 1))
    await bench.settle()
    assert one.answers == [(0, 1)]
    assert (len(one.failures), len(two.failures), idle.failures) == (1, 1, [])
    assert "lost" in one.failures[0]
    assert bench.streams[0].cancelled
    bench.clock.advance(1)
    bench.send(1, 1)
    await bench.settle()
    assert bench.streams[1].entries == [[(1, 1)]]
    bench.streams[1].answer((1, 1, 1))
    await bench.settle()
    assert one.answers == [(0, 1), (1, 1)]
    assert len(one.failures) == 1


async def test_a_late_answer_and_the_end_of_an_old_stream_reach_nobody() -> None:
    async with Bench(LedgerClientSettings(add_entry_timeout_seconds=2.0)) as bench:
        one = bench.sink(1)
        bench.send(1, 0)
        await bench.settle()
        bench.streams[0].answer((1, 0, 1))  # it is there, and was not read yet when the time is over
        bench.clock.advance(2)
        assert len(one.failures) == 1
        bench.channel.reset_backoff()
        bench.send(1, 0)  # the next stream is open before the old one has ended
        await bench.settle()
        assert len(bench.streams) == 2
        assert (one.answers, len(one.failures)) == ([], 1)
        bench.streams[1].answer((1, 0, 1))
        await bench.settle()
        assert one.answers == [(0, 1)]


async def test_the_end_of_an_idle_stream_is_nobodys_failure(bench: Bench) -> None:
    one = bench.sink(1)
    bench.send(1, 0)
    await bench.settle()
    bench.streams[0].answer((1, 0, 1))
    bench.streams[0].incoming.put_nowait(None)
    await bench.settle()
    bench.send(1, 1)
    await bench.settle()
    assert one.failures == []
    assert bench.streams[1].entries == [[(1, 1)]]


async def test_the_oldest_add_that_is_not_answered_in_time_breaks_the_stream() -> None:
    async with Bench(LedgerClientSettings(add_entry_timeout_seconds=2.0)) as bench:
        one = bench.sink(1)
        bench.send(1, 0)
        await bench.settle()
        bench.clock.advance(1.5)
        bench.send(1, 1)
        bench.streams[0].answer((1, 0, 1))
        await bench.settle()
        bench.clock.advance(1.9)
        assert one.failures == []
        bench.clock.advance(0.2)
        assert len(one.failures) == 1
        assert "within 2.0 s" in one.failures[0]


async def test_an_add_that_could_not_even_be_sent_times_out_too() -> None:
    async with Bench(LedgerClientSettings(add_entry_timeout_seconds=2.0)) as bench:
        one = bench.sink(1)
        bench.send(1, 0)
        await bench.settle()
        bench.streams[0].answer((1, 0, 1))
        bench.streams[0].open.clear()
        await bench.settle()
        bench.send(1, 1, 2)
        await bench.settle()
        bench.clock.advance(2.5)
        assert len(one.failures) == 1
        await bench.settle()
        assert bench.streams[0].entries == [[(1, 0)]]


async def test_responses_are_read_before_timeouts_after_a_process_pause(bench: Bench) -> None:
    one = bench.sink(1)
    bench.send(1, 0)
    await bench.settle()
    bench.clock._monotonic += 60  # the process was suspended
    bench.streams[0].answer((1, 0, 1))
    bench.clock.advance(0)
    await bench.settle()
    assert (one.answers, one.failures) == ([(0, 1)], [])
    bench.send(1, 1)
    await bench.settle()
    bench.clock._monotonic += 60
    bench.clock.advance(0)
    bench.clock.advance(1)
    assert len(one.failures) == 1


async def test_a_lag_breaks_nothing_and_is_notified_until_it_is_over() -> None:
    """CHK-66: each ledger with something unanswered hears of it, once; and a ledger that comes later, at once."""
    async with Bench(LedgerClientSettings(max_bookie_lag_bytes=5000)) as bench:
        one, two, idle = bench.sink(1), bench.sink(2), bench.sink(3)
        bench.send(1, 0, 1, 2, size=800)
        bench.send(2, 0)
        await bench.settle()
        bench.send(1, 3, 4, size=800)
        assert one.lags == []  # never from within `send`
        bench.send(1, 5, size=800)
        await bench.settle()
        assert (len(one.lags), len(two.lags), idle.lags) == (1, 1, [])
        assert "at most 5000" in one.lags[0]
        bench.send(3, 0)
        late = bench.sink(4)
        assert len(late.lags) == 1
        await bench.settle()
        assert len(idle.lags) == 1
        bench.streams[0].answer((1, 0, 3))
        await bench.settle()
        assert len(one.lags) == 1  # less, and more than half of it
        bench.streams[0].answer((1, 3, 3))
        await bench.settle()
        assert one.lags[1:] == two.lags[1:] == idle.lags[1:] == late.lags[1:] == [""]
        assert one.failures == two.failures == []
        assert len(bench.streams) == 1


async def test_records_of_a_ledger_that_abandons_the_bookie_are_not_sent() -> None:
    """CHK-66: those in line. The stream goes on for the other ledgers."""
    async with Bench(LedgerClientSettings(max_bookie_lag_bytes=5000)) as bench:
        one, two = bench.sink(1), bench.sink(2)
        bench.send(1, 0)
        await bench.settle()
        bench.streams[0].open.clear()
        bench.send(1, 1)
        await bench.settle()
        bench.send(1, 2, 3, 4, 5, 6, size=800)
        bench.send(2, 0)
        await bench.settle()
        assert len(one.lags) == len(two.lags) == 1
        bench.channel.abandon(1, one)
        await bench.settle()
        assert two.lags[1:] == [""]
        bench.streams[0].open.set()
        await bench.settle()
        assert bench.streams[0].entries == [[(1, 0)], [(1, 1)], [(2, 0)]]
        bench.streams[0].answer((1, 0, 2), (2, 0, 1))
        await bench.settle()
        assert (one.answers, two.answers) == ([], [(0, 1)])
        assert bench.channel.unanswered_bytes == 0


async def test_records_that_another_sink_waits_for_stay_in_line(bench: Bench) -> None:
    """Several recoveries of one ledger may share a channel."""
    one, other = bench.sink(1), bench.sink(1)
    bench.send(1, 0)
    await bench.settle()
    bench.streams[0].open.clear()
    bench.send(1, 1)
    await bench.settle()
    bench.send(1, 2)
    bench.channel.abandon(1, one)
    await bench.settle()
    bench.streams[0].open.set()
    await bench.settle()
    assert bench.streams[0].entries == [[(1, 0)], [(1, 1)], [(1, 2)]]
    bench.streams[0].answer((1, 0, 3))
    await bench.settle()
    assert (one.answers, other.answers) == ([], [(0, 3)])


async def test_reattached_ledger_is_sent_after_abandoning_the_bookie(bench: Bench) -> None:
    """In the same turn of the loop, too."""
    one = bench.sink(1)
    bench.send(1, 0, 1)
    bench.channel.abandon(1, one)
    bench.channel.attach(1, one)
    bench.send(1, 1)
    await bench.settle()
    assert bench.streams[0].entries == [[(1, 1)]]
    bench.streams[0].answer((1, 1, 1))
    await bench.settle()
    assert one.answers == [(1, 1)]


async def test_a_break_ends_the_lag() -> None:
    async with Bench(LedgerClientSettings(max_bookie_lag_bytes=5000)) as bench:
        one, idle = bench.sink(1), bench.sink(2)
        bench.send(1, 0, 1, 2, 3, 4, size=1000)
        await bench.settle()
        late = bench.sink(3)
        bench.streams[0].incoming.put_nowait(Disconnected("lost"))
        await bench.settle()
        assert len(one.failures) == 1
        assert (idle.lags, late.lags[1:], late.failures) == ([], [""], [])


async def test_the_time_in_line_does_not_count() -> None:
    """CHK-66: the timeout runs from when a record leaves the process, for as long as the bookie answers older ones."""
    async with Bench(LedgerClientSettings(add_entry_timeout_seconds=2.0)) as bench:
        one = bench.sink(1)
        bench.send(1, 0)
        await bench.settle()
        bench.streams[0].open.clear()
        bench.send(1, 1)
        await bench.settle()
        bench.send(1, 2)  # stays in line while the frame before is being sent
        for answered in (0, 1):
            bench.clock.advance(1.8)
            bench.streams[0].answer((1, answered, 1))
            await bench.settle()
        bench.clock.advance(2.5)
        bench.streams[0].open.set()
        await bench.settle()
        bench.clock.advance(1.8)
        assert one.failures == []
        bench.clock.advance(0.3)
        assert len(one.failures) == 1


async def test_dead_bookie_is_retried_with_backoff_until_it_registers(bench: Bench) -> None:
    one = bench.sink(1)
    opened: list[float] = []
    for _ in range(40):
        bench.send(1, 0)
        await bench.settle()
        if len(bench.streams) > len(opened):
            opened.append(bench.clock.monotonic() - 1000)
            bench.streams[-1].incoming.put_nowait(Disconnected("nobody there"))
            await bench.settle()
        bench.clock.advance(0.1)
    assert len(one.failures) == 40  # at once, each time
    assert 4 <= len(opened) <= 8
    bench.channel.reset_backoff()
    bench.send(1, 0)
    await bench.settle()
    assert len(bench.streams) == len(opened) + 1


async def test_answers_that_are_nonsense_do_no_harm(bench: Bench) -> None:
    one = bench.sink(1)
    bench.send(1, 5)
    await bench.settle()
    bench.streams[0].answer((1, 0, 2**32 - 1), (7, 2**64 - 1, 2**32 - 1), (1, 5, 0))
    await bench.settle()
    assert bench.channel.unanswered_bytes == 0
    bench.send(1, 6)
    bench.streams[0].incoming.put_nowait(b"\xff\xff")
    await bench.settle()
    assert len(one.failures) == 1
    assert "can't be decoded" in one.failures[0]


async def test_a_sink_that_fails_breaks_the_stream_and_nothing_else(bench: Bench) -> None:
    class Failing(Sink):
        def on_answer(self, bookie_id: str, first_entry_id: int, count: int, status: int) -> None:
            raise ValueError("a mistake")

    bench.channel.attach(1, Failing())
    two = bench.sink(2)
    bench.send(1, 0)
    bench.send(2, 0)
    await bench.settle()
    bench.streams[0].answer((1, 0, 1))
    await bench.settle()
    assert len(two.failures) == 1


async def test_detached_sink_receives_no_more_events(bench: Bench) -> None:
    detached, stays = Sink(), bench.sink(1)
    detach = bench.channel.attach(1, detached)
    bench.send(1, 0, 1)
    await bench.settle()
    detach()
    detach()
    bench.streams[0].answer((1, 0, 1))
    bench.streams[0].incoming.put_nowait(Disconnected("lost"))
    await bench.settle()
    assert (detached.answers, detached.failures) == ([], [])
    assert (stays.answers, len(stays.failures)) == ([(0, 1)], 1)


async def test_adds_of_recovery_have_a_channel_of_their_own() -> None:
    async with Bench(recovery=True) as bench:
        bench.send(1, 0)
        await bench.settle()
        assert all(run.recovery for message in bench.streams[0].sent for run in message.runs)
