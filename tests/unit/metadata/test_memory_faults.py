"""The in-memory server's faults do what they say: other tests and the simulation rely on them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from magnetar_metadata.compare_and_set import change
from magnetar_metadata.errors import BadVersion, NotSent, OutcomeUnknown, SessionLost
from magnetar_metadata.store import ABSENT, Node, SessionState, Stat
from magnetar_testing.clock import ManualClock
from magnetar_testing.metadata import Fault, MemoryServer, MemoryStore
from magnetar_testing.randomness import SeededRandomness

Scenario = Callable[[ManualClock, MemoryServer], Awaitable[None]]


@pytest.fixture
async def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def server(clock: ManualClock) -> MemoryServer:
    return MemoryServer(clock, ["/r"], session_timeout_s=10)


async def _turns(turns: int = 20) -> None:
    for _ in range(turns):
        await asyncio.sleep(0)


def _state(store: MemoryStore) -> SessionState:
    """Called each time: a type checker takes an attribute to stay as it was."""
    return store.session.state


async def test_a_lost_request_is_never_applied(clock: ManualClock, server: MemoryServer) -> None:
    store, other = server.connect(), server.connect()
    server.queue_faults(store, Fault.LOSE_REQUEST)
    with pytest.raises(OutcomeUnknown):
        await store.put("/a", b"", ABSENT)
    assert store.session.state is SessionState.SUSPENDED
    with pytest.raises(NotSent):
        await store.put("/a", b"", ABSENT)
    server.resume(store)
    assert server.release(store) == 0
    assert await other.get("/a") is None


async def test_a_lost_answer_belongs_to_an_applied_request(clock: ManualClock, server: MemoryServer) -> None:
    store, other = server.connect(), server.connect()
    sent_at = store.session.answered_sent_at
    clock.advance(1)
    server.queue_faults(store, None, Fault.LOSE_ANSWER)
    await store.ping()
    assert store.session.answered_sent_at == sent_at + 1
    clock.advance(1)
    with pytest.raises(OutcomeUnknown):
        await store.put("/a", b"x", ABSENT)
    assert store.session.answered_sent_at == sent_at + 1
    assert await other.get("/a") == Node(b"x", Stat(0))


async def test_held_request_is_applied_late_unless_its_session_syncs(clock: ManualClock, server: MemoryServer) -> None:
    store, other = server.connect(), server.connect()
    for path in ("/a", "/b"):
        server.queue_faults(store, Fault.HOLD_REQUEST)
        with pytest.raises(OutcomeUnknown):
            await store.put(path, b"held", ABSENT)
        server.resume(store)
        await other.put("/other", path.encode(), -2)
        assert await store.get(path) is None
        if path == "/b":
            await store.sync()
        assert server.release(store) == (path == "/a")
        assert (await store.get(path) is not None) == (path == "/a")


async def test_a_session_runs_out_by_the_clock_and_its_store_hears_on_resuming(
    clock: ManualClock, server: MemoryServer
) -> None:
    """No other session is notified before `safe_until`."""
    store, other = server.connect(), server.connect()
    await store.put("/e", b"", ABSENT, ephemeral=True)
    safe_until = store.session.safe_until()
    server.suspend(store)
    clock.advance(safe_until - clock.monotonic())
    assert await other.exists("/e") is not None
    clock.advance(1.0)
    assert await other.exists("/e") is None
    heard: list[SessionState] = [store.session.state]
    store.session.listen(heard.append)
    server.resume(store)
    assert heard == [SessionState.SUSPENDED, SessionState.LOST]
    with pytest.raises(SessionLost):
        await store.get("/e")


async def test_suspended_session_survives_if_resumed_before_its_timeout(
    clock: ManualClock, server: MemoryServer
) -> None:
    store = server.connect()
    await store.put("/e", b"", ABSENT, ephemeral=True)
    server.suspend(store)
    clock.advance(9.9)
    server.resume(store)
    clock.advance(100)
    assert await store.exists("/e") == Stat(0, store.session.id)


async def test_answers_wait_for_the_clock(clock: ManualClock, server: MemoryServer) -> None:
    store, other = server.connect(), server.connect()
    server.delay_answers(store, 3)
    sent_at = clock.monotonic()
    putting = asyncio.create_task(store.put("/a", b"", ABSENT))
    await _turns()
    assert await other.exists("/a") == Stat(0)
    clock.advance(2.9)
    await _turns()
    assert not putting.done()
    clock.advance(0.1)
    await putting
    # Not when it was answered: when it was sent.
    assert store.session.answered_sent_at == sent_at


async def test_a_lagging_reader_sees_the_past_until_it_syncs_and_then_its_watches(
    clock: ManualClock, server: MemoryServer
) -> None:
    store, other = server.connect(), server.connect()
    await other.put("/r/a", b"old", ABSENT)
    watches = [store.watch("/r/a"), store.watch_subtree("/r")]
    for watch in watches:
        await watch.wait()
    server.lag(store)
    await other.put("/r/a", b"new", 0)
    waits = [asyncio.create_task(watch.wait()) for watch in watches]
    await _turns()
    assert not any(wait.done() for wait in waits)
    assert await store.get("/r/a") == Node(b"old", Stat(0))
    with pytest.raises(BadVersion):
        await store.put("/r/a", b"", 0)
    await store.sync()
    assert await store.get("/r/a") == Node(b"new", Stat(1))
    await asyncio.gather(*waits)


async def test_compare_and_set_reports_the_correct_outcome_at_its_deadline(
    clock: ManualClock, server: MemoryServer
) -> None:
    store = server.connect()
    for fault, kind in ((Fault.LOSE_ANSWER, OutcomeUnknown), (None, NotSent)):
        server.queue_faults(store, None, fault)
        if fault is None:
            server.suspend(store)
        changing = asyncio.create_task(
            change(store, "/c", lambda _: b"x", clock=clock, randomness=SeededRandomness(1), timeout_s=5)
        )
        await _turns()
        assert not changing.done()
        clock.advance(5)
        with pytest.raises(kind):
            await changing
        server.resume(store)


async def test_compare_and_set_raises_unknown_after_too_many_other_changes(
    clock: ManualClock, server: MemoryServer
) -> None:
    store, other = server.connect(), server.connect()
    ours, theirs = SeededRandomness(1), SeededRandomness(2)
    await change(other, "/c", lambda _: b"", clock=clock, randomness=theirs)
    for times, deleted in ((20, False), (1, True)):
        server.queue_faults(store, None, Fault.LOSE_ANSWER)
        changing = asyncio.create_task(change(store, "/c", lambda _: b"mine", clock=clock, randomness=ours))
        await _turns()
        if deleted:
            found = await other.exists("/c")
            assert found is not None
            await other.delete("/c", found.version)
        for _ in range(times):
            await change(other, "/c", lambda _: b"theirs", clock=clock, randomness=theirs)
        server.resume(store)
        with pytest.raises(OutcomeUnknown):
            await changing


async def test_safe_until_ends_before_another_client_can_own_the_node(clock: ManualClock, server: MemoryServer) -> None:
    """The server gives the session up while its client still thinks that it is connected."""
    owner, other = server.connect(), server.connect()
    await owner.put("/owner", b"", ABSENT, ephemeral=True)
    clock.advance(3)
    await owner.get("/owner")
    safe_until = owner.session.safe_until()
    server.cut_silently(owner)
    while await other.exists("/owner") is not None:
        clock.advance(0.01)
    await other.put("/owner", b"", ABSENT, ephemeral=True)
    assert _state(owner) is SessionState.CONNECTED
    assert owner.session.safe_until() == safe_until < clock.monotonic()
    # Counted from what was heard last, the read, though that made nobody safe for longer.
    assert clock.monotonic() == pytest.approx(1013, abs=0.1)
    assert safe_until == 1009
    server.heal(owner)
    with pytest.raises(OutcomeUnknown):
        await owner.get("/owner")
    assert _state(owner) is SessionState.LOST


@pytest.mark.parametrize("requests", [True, False])
async def test_unanswered_request_times_out_and_is_applied_if_it_arrived(requests: bool) -> None:
    clock = ManualClock()
    server = MemoryServer(clock, session_timeout_s=9)
    store, other = server.connect(), server.connect()
    await store.put("/e", b"", ABSENT, ephemeral=True)
    server.cut_silently(store, requests=requests, answers=not requests)
    putting = asyncio.create_task(store.put("/a", b"", ABSENT))
    await _turns()
    clock.advance(5.9)
    await _turns()
    assert not putting.done()
    assert _state(store) is SessionState.CONNECTED
    clock.advance(0.1)
    with pytest.raises(OutcomeUnknown):
        await putting
    assert _state(store) is SessionState.SUSPENDED
    assert (await other.exists("/a") is None) == requests
    # Heartbeats arrived until then, or did not.
    clock.advance(3.5)
    assert (await other.exists("/e") is None) == requests
    server.resume(store)
    assert _state(store) is (SessionState.LOST if requests else SessionState.CONNECTED)


async def test_heartbeats_keep_a_silent_session_alive(clock: ManualClock, server: MemoryServer) -> None:
    store, other = server.connect(), server.connect()
    await store.put("/e", b"", ABSENT, ephemeral=True)
    clock.advance(100)
    assert await other.exists("/e") is not None
    # The last heartbeat came at most a third of the timeout ago.
    server.cut_silently(store, answers=False)
    clock.advance(6.5)
    assert await other.exists("/e") is not None
    clock.advance(3.5)
    assert await other.exists("/e") is None


async def test_unnotified_session_expiry_is_detected_at_the_next_answer(
    clock: ManualClock, server: MemoryServer
) -> None:
    asking, waiting = server.connect(), server.connect()
    for store in (asking, waiting):
        server.expire(store, notify=False)
        assert _state(store) is SessionState.CONNECTED
    with pytest.raises(OutcomeUnknown):
        await asking.ping()
    assert _state(asking) is SessionState.LOST
    clock.advance(3.3)
    assert _state(waiting) is SessionState.CONNECTED
    clock.advance(0.1)
    assert _state(waiting) is SessionState.LOST


async def test_reads_and_syncs_make_nobody_safe_for_longer(clock: ManualClock, server: MemoryServer) -> None:
    store = server.connect()
    begun = store.session.answered_sent_at
    clock.advance(1)
    await store.get("/a")
    await store.exists("/a")
    await store.children("/a")
    await store.sync()
    assert store.session.answered_sent_at == begun
    await store.ping()
    assert store.session.answered_sent_at == begun + 1
    clock.advance(1)
    await store.put("/b", b"", ABSENT)
    clock.advance(1)
    with pytest.raises(BadVersion):
        await store.put("/b", b"", ABSENT)
    assert store.session.answered_sent_at == begun + 3


async def test_a_server_forgets_sessions_that_are_over(clock: ManualClock, server: MemoryServer) -> None:
    closed, expired, closed_unheard, resumed = (server.connect() for _ in range(4))
    await closed.close()
    server.expire(expired)
    server.suspend(closed_unheard)
    await closed_unheard.close()
    server.suspend(resumed)
    assert list(server._links) == [closed_unheard.session.id, resumed.session.id]
    clock.advance(10)
    server.resume(resumed)
    assert not server._links
    for store in (closed, expired, closed_unheard, resumed):
        server.suspend(store)
        server.resume(store)
        server.cut_silently(store)
        server.heal(store)
        server.expire(store)
        assert server.release(store) == 0


async def test_missed_watches_fire_when_the_connection_heals(clock: ManualClock, server: MemoryServer) -> None:
    store, other = server.connect(), server.connect()
    watch = store.watch("/a")
    await watch.wait()
    server.cut_silently(store, requests=False)
    await other.put("/a", b"", ABSENT)
    waiting = asyncio.create_task(watch.wait())
    await _turns()
    assert not waiting.done()
    server.heal(store)
    await waiting
