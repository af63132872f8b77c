"""The ZooKeeper store when the server hangs, connections break and sessions run out."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from magnetar_cli.local_java import NoJava, find_java
from magnetar_metadata.compare_and_set import change, read
from magnetar_metadata.errors import MetadataError, NotSent, OutcomeUnknown, SessionLost, Unavailable
from magnetar_metadata.store import ABSENT, MetadataStore, Node, SessionState, Stat, Watch
from magnetar_metadata.zookeeper import open_zookeeper
from magnetar_testing.local_zookeeper import LocalZooKeeper
from magnetar_wire.clock import SystemClock
from magnetar_wire.randomness import SystemRandomness
from tests.contract.zookeeper_space import ZooKeeperSpace
from tests.faults.proxy import Proxy
from tests.running import until, within

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalZooKeeper]:
    try:
        find_java()
    except NoJava as error:
        pytest.skip(str(error))
    with LocalZooKeeper(tmp_path_factory.mktemp("zookeeper-faults")) as started:
        yield started


def _proxy(zookeeper: LocalZooKeeper) -> Proxy:
    return Proxy("127.0.0.1", zookeeper.servers[0].client_port)


async def test_a_stopped_server_is_noticed_though_requests_go_on(zookeeper: LocalZooKeeper) -> None:
    """Nothing is answered, nothing hangs, the session is suspended and not lost; then it is decided."""
    space = ZooKeeperSpace(zookeeper.hosts, session_timeout_s=2)
    store = await space.connect()
    heard: list[SessionState] = []
    store.session.listen(heard.append)
    await store.put("/a", b"before", ABSENT)
    safe_until = store.session.safe_until()
    zookeeper.servers[0].pause()
    # Often enough that kazoo never gets to its own pings, by which alone it would notice.
    asking = asyncio.create_task(_ask_on_and_on(store))
    try:
        outcomes: list[type[MetadataError]] = []
        while store.session.state is SessionState.CONNECTED:
            requests = (store.put("/a", b"after", 0), store.get("/a"), store.ping())
            for each in [asyncio.ensure_future(request) for request in requests]:
                with pytest.raises(Unavailable) as raised:
                    await within(each, "the end of a request to a stopped server")
                outcomes.append(raised.type)
        assert OutcomeUnknown in outcomes
        assert heard == [SessionState.SUSPENDED]
        for refused in (store.get("/a"), store.put("/a", b"", 0), store.sync()):
            with pytest.raises(NotSent):
                await refused
        assert store.session.safe_until() == safe_until
    finally:
        zookeeper.servers[0].resume()
        await asking
    await until(lambda: store.session.state is not SessionState.SUSPENDED, "the session's fate is known")
    if store.session.state is SessionState.LOST:
        with pytest.raises(SessionLost):
            await store.get("/a")
        store = await space.connect()
    await store.sync()
    node = await store.get("/a")
    # The put was in flight when the server stopped: it may have been made.
    assert node in (Node(b"before", Stat(0)), Node(b"after", Stat(1)))
    await space.close()


async def test_a_session_that_ran_out_is_lost_once_and_for_all(zookeeper: LocalZooKeeper) -> None:
    """Suspended first, lost when the server reports it, and kazoo's next session is not ours."""
    async with _proxy(zookeeper) as proxy:
        space = ZooKeeperSpace(zookeeper.hosts)
        other = await space.connect()
        # Named twice, so that kazoo would go on to a next server at once.
        store = await space.connect_to(f"{proxy.address},{proxy.address}", session_timeout_s=1)
        assert store.session.timeout_s == 1
        heard: list[SessionState] = []
        store.session.listen(heard.append)
        await store.put("/owner", b"", ABSENT, ephemeral=True)
        watch = store.watch("/owner")
        watching = asyncio.create_task(_for_ever(watch))
        proxy.closed_to_new = True
        proxy.cut()
        await until(lambda: store.session.state is SessionState.SUSPENDED, "the session is suspended")

        async def session_expired() -> bool:
            return await other.exists("/owner") is None

        await until(session_expired, "the server has given the session up")
        assert SystemClock().monotonic() >= store.session.safe_until()
        assert heard == [SessionState.SUSPENDED]
        proxy.let_in = 0
        proxy.heal()
        await within(store.session.wait_lost(), "the loss of the session")
        assert heard == [SessionState.SUSPENDED, SessionState.LOST]
        with pytest.raises(SessionLost):
            await within(watching, "the end of the watch")
        for refused in (store.get("/owner"), store.put("/owner", b"", ABSENT, ephemeral=True), store.ping()):
            with pytest.raises(SessionLost):
                await refused
        await store.close()
        # The one that brought the news; kazoo would go on with a session of its own.
        assert proxy.let_in == 1
        assert heard == [SessionState.SUSPENDED, SessionState.LOST]
        assert not await other.children("/owner")
        await space.close()


@pytest.mark.parametrize("lost", ["answer", "request"])
@pytest.mark.parametrize("other_writes", [False, True])
async def test_change_is_made_exactly_once_after_lost_request_or_answer(
    zookeeper: LocalZooKeeper, lost: str, other_writes: bool
) -> None:
    """Made or not, overwritten in between or not: at the end it was made exactly once."""
    async with _proxy(zookeeper) as proxy:
        space = ZooKeeperSpace(zookeeper.hosts)
        other = await space.connect()
        store = await space.connect_to(proxy.address)
        await _append(other, b"0")
        assert await read(store, "/cas") is not None
        proxy.lost = 0
        proxy.loses_answers, proxy.loses_requests = lost == "answer", lost == "request"
        writing = asyncio.create_task(_append(store, b"s", first_read_done=proxy))
        if lost == "answer":
            await until(lambda: _payload_is(other, b"0s"), "the change is made, its answer lost")
        else:
            await until(lambda: proxy.lost > 0, "the request is lost")
        proxy.closed_to_new = True
        proxy.cut()
        await until(lambda: store.session.state is SessionState.SUSPENDED, "the session is suspended")
        if other_writes:
            await _append(other, b"o")
        proxy.heal()
        stored = await within(writing, "the end of the change")
        await other.sync()
        final = await read(other, "/cas")
        assert final is not None
        expected = {("answer", False): b"0s", ("answer", True): b"0so", ("request", False): b"0s"}
        assert final.payload == expected.get((lost, other_writes), b"0os")
        assert stored is not None
        await space.close()


@pytest.mark.parametrize("lost", ["answer", "request"])
async def test_a_lost_answer_is_unknown_and_not_a_no(zookeeper: LocalZooKeeper, lost: str) -> None:
    async with _proxy(zookeeper) as proxy:
        space = ZooKeeperSpace(zookeeper.hosts)
        other = await space.connect()
        store = await space.connect_to(proxy.address)
        heard: list[SessionState] = []
        store.session.listen(heard.append)
        proxy.lost = 0
        proxy.loses_answers, proxy.loses_requests = lost == "answer", lost == "request"
        writing = asyncio.create_task(store.put("/a", b"x", ABSENT))
        reading = asyncio.create_task(store.get("/a"))
        await until(lambda: proxy.lost > 0, "something is lost")
        proxy.cut()
        for request in (writing, reading):
            with pytest.raises(OutcomeUnknown):
                await within(request, "the end of a request")
        proxy.heal()
        await until(lambda: heard == [SessionState.SUSPENDED, SessionState.CONNECTED], "the connection is back")
        await store.sync()
        if lost == "request":
            assert await store.get("/a") is None
            await store.put("/a", b"y", ABSENT)
        await other.sync()
        await space.close()


async def test_open_without_server_raises_not_sent(zookeeper: LocalZooKeeper) -> None:
    async with _proxy(zookeeper) as proxy:
        proxy.closed_to_new = True
        with pytest.raises(NotSent, match="session"):
            await open_zookeeper(proxy.address, SystemClock(), connect_timeout_s=0.5)


async def test_many_pending_kazoo_requests_do_not_block_event_loop(zookeeper: LocalZooKeeper) -> None:
    """While the server hangs, all that waits fails in time, sent or not."""
    space = ZooKeeperSpace(zookeeper.hosts, session_timeout_s=2)
    store = await space.connect()
    zookeeper.servers[0].pause()
    try:
        requests = [asyncio.create_task(store.put(f"/big/{n}", b"x" * 100_000, ABSENT)) for n in range(1000)]
        ended = await within(asyncio.gather(*requests, return_exceptions=True), "the end of all requests")
    finally:
        zookeeper.servers[0].resume()
    assert all(isinstance(each, Unavailable) for each in ended)
    assert any(isinstance(each, NotSent) for each in ended)
    await space.close()


async def _append(store: MetadataStore, what: bytes, first_read_done: Proxy | None = None) -> object:
    """Appends to the node. With a proxy that loses things: the loop's first read gets through, its put does not."""
    losses = (first_read_done.loses_requests, first_read_done.loses_answers) if first_read_done else None
    if first_read_done is not None:
        first_read_done.loses_requests = first_read_done.loses_answers = False

    def update(old: bytes | None) -> bytes:
        nonlocal losses
        if first_read_done is not None and losses is not None:
            first_read_done.loses_requests, first_read_done.loses_answers = losses
            losses = None
        return (old or b"") + what

    return await change(store, "/cas", update, clock=SystemClock(), randomness=SystemRandomness())


async def _payload_is(store: MetadataStore, payload: bytes) -> bool:
    stored = await read(store, "/cas")
    return stored is not None and stored.payload == payload


async def _ask_on_and_on(store: MetadataStore) -> None:
    requests: list[asyncio.Task[object]] = []
    while store.session.state is SessionState.CONNECTED:
        requests.append(asyncio.create_task(store.exists("/a")))
        await asyncio.sleep(0.02)
    await asyncio.gather(*requests, return_exceptions=True)


async def _for_ever(watch: Watch) -> None:
    while True:
        await watch.wait()
