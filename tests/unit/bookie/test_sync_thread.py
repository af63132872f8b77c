"""The sync thread: jobs run in order, also after an error, and shutdown waits for them."""

from __future__ import annotations

import asyncio
import threading

from magnetar_bookie.storage.rocksdb.sync_thread import SyncThread
from tests.running import until


async def test_syncs_run_in_order_and_report_on_the_event_loop() -> None:
    thread = SyncThread("syncs")
    done: list[int] = []
    reported: list[tuple[int, BaseException | None, int]] = []
    for number in range(100):
        thread.submit(
            lambda number=number: done.append(number),  # type: ignore[misc]
            lambda error, number=number: reported.append((number, error, threading.get_ident())),  # type: ignore[misc]
        )
    await until(lambda: len(reported) == 100, "all are reported")
    assert done == list(range(100))
    assert reported == [(number, None, threading.get_ident()) for number in range(100)]
    thread.shutdown()


async def test_error_is_reported_to_its_callback_and_next_sync_runs() -> None:
    thread = SyncThread("syncs")
    failure = OSError("the disk failed")
    reported: list[BaseException | None] = []

    def fails() -> None:
        raise failure

    thread.submit(fails, reported.append)
    thread.submit(lambda: None, reported.append)
    await until(lambda: len(reported) == 2, "both are reported")
    assert reported == [failure, None]
    thread.shutdown()


async def test_shutdown_waits_for_queued_syncs() -> None:
    thread = SyncThread("syncs")
    begun, may_end = threading.Event(), threading.Event()
    done: list[str] = []

    def slow() -> None:
        begun.set()
        may_end.wait(60)
        done.append("slow")

    thread.submit(slow, lambda error: None)
    thread.submit(lambda: done.append("behind it"), lambda error: None)
    ending = asyncio.ensure_future(asyncio.to_thread(thread.shutdown))
    await until(begun.is_set, "the first has begun")
    assert not ending.done()
    may_end.set()
    await ending
    assert done == ["slow", "behind it"]


def test_one_that_was_never_used_ends_at_once() -> None:
    SyncThread("syncs").shutdown()


def test_closed_event_loop_does_not_stop_sync_thread() -> None:
    thread = SyncThread("syncs")
    may_go_on = threading.Event()
    done = threading.Event()

    async def ask() -> None:
        thread.submit(lambda: may_go_on.wait(60), lambda error: None)
        thread.submit(done.set, lambda error: None)

    asyncio.run(ask())
    may_go_on.set()
    assert done.wait(60)
    thread.shutdown()
