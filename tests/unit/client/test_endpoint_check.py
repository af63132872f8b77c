"""The warning while no broker answers, and the error when the operation fails."""

from __future__ import annotations

import asyncio
import contextlib
import http.server
import logging
import re
import socket
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

import pytest

import magnetar
from magnetar import aio, exceptions
from magnetar._client_core import ClientCore
from magnetar._connections.endpoint_check import LEAST_PROBE_S, WARN_AFTER_S
from magnetar.admin import AsyncAdmin
from magnetar_testing.clock import ManualClock
from magnetar_wire.grpc_transport import GrpcTransport
from magnetar_wire.in_process_transport import InProcessTransport
from tests.running import until
from tests.unit.client.fake_broker import FakeBroker
from tests.unit.client.lookup_broker import ADDRESS
from tests.unit.client.scene import core_of
from tests.unit.client.test_endpoint_probe import CONNECTED, server_that_answers
from tests.unit.client.test_lookup import TOPIC, pass_time


class Describing(InProcessTransport):
    """Describes endpoints, like the gRPC transport."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock)
        self.probes: list[tuple[tuple[str, ...], bool]] = []
        self.found = "no process listens"
        self.probing = asyncio.Event()
        # Cleared: a probe does not end.
        self.answering = asyncio.Event()
        self.answering.set()

    async def describe_endpoints(self, addresses: Sequence[str], *, failed: bool) -> str:
        self.probing.set()
        self.probes.append((tuple(addresses), failed))
        await self.answering.wait()
        return self.found


@contextlib.asynccontextmanager
async def connections(clock: ManualClock, **options: Any) -> AsyncIterator[tuple[Describing, ClientCore]]:
    transport = Describing(clock)
    made = core_of(transport, clock=clock, **options)
    yield transport, made
    await made.shutdown()


def warnings_in(log: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in log.records if record.levelno >= logging.WARNING]


async def test_one_warning_names_the_address_where_no_broker_answers(caplog: pytest.LogCaptureFixture) -> None:
    """One for any number of operations, and the next one only after a broker has answered. The client retries."""
    clock = ManualClock()
    async with connections(clock) as (transport, made):
        lookups: Any = asyncio.ensure_future(
            asyncio.gather(*(made.lookup.count_partitions(f"{TOPIC}{number}") for number in range(20)))
        )
        await pass_time(clock, asyncio.create_task(clock.sleep(0.9)))
        assert warnings_in(caplog) == []
        await pass_time(clock, asyncio.create_task(clock.sleep(5)))
        assert warnings_in(caplog) == [f"no broker has answered for 1 s at {ADDRESS}: no process listens; still trying"]
        assert transport.probes == [((ADDRESS,), True)]
        broker = await FakeBroker().start(transport)
        await pass_time(clock, lookups)
        assert await lookups == [0] * 20
        await broker.stop()
        again = asyncio.create_task(made.lookup.count_partitions(TOPIC))
        await pass_time(clock, asyncio.create_task(clock.sleep(3)))
        assert len(warnings_in(caplog)) == 2
        await broker.start(transport)
        await pass_time(clock, again)
        await broker.stop()


async def test_an_answer_within_a_second_and_a_slow_broker_cause_no_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = ManualClock()
    async with connections(clock) as (transport, made):
        broker = await FakeBroker().start(transport)
        assert await made.lookup.count_partitions(TOPIC) == 0
        broker.answering_calls.clear()
        transport.found = ""  # it listens
        slow = asyncio.create_task(made.lookup.count_partitions(TOPIC))
        await pass_time(clock, asyncio.create_task(clock.sleep(5)))
        other = asyncio.create_task(made.lookup.count_partitions(f"{TOPIC}2"))
        await pass_time(clock, asyncio.create_task(clock.sleep(3)))
        assert transport.probes == [((ADDRESS,), False)]  # once
        broker.answering_calls.set()
        assert (await slow, await other) == (0, 0)
        await pass_time(clock, asyncio.create_task(clock.sleep(5)))
        assert warnings_in(caplog) == []
        # A broker that is slow at first, and then can't be reached any more, causes one.
        broker.answering_calls.clear()
        slow = asyncio.create_task(made.lookup.count_partitions(TOPIC))
        await pass_time(clock, asyncio.create_task(clock.sleep(3)))
        assert warnings_in(caplog) == []
        transport.found = "no process listens"
        broker.answering_calls.set()
        await broker.stop()
        lost = asyncio.create_task(made.lookup.count_partitions(f"{TOPIC}2"))
        await pass_time(clock, asyncio.create_task(clock.sleep(5)))
        assert len(warnings_in(caplog)) == 1
        await broker.start(transport)
        await pass_time(clock, lost)
        await asyncio.gather(slow, lost)
        await broker.stop()


async def test_connect_error_states_the_probe_result_once() -> None:
    clock = ManualClock()
    async with connections(clock, operation_timeout_seconds=10.0) as (_, made):
        failing = asyncio.create_task(
            made.operations.retry(lambda: made.lookup.count_partitions(TOPIC))
        )  # like the opening of a producer
        await pass_time(clock, failing)
        with pytest.raises(exceptions.ConnectError) as failed:
            await failing
        begin, end = str(failed.value).split(" s: ")
        assert re.fullmatch(rf"no broker answers at {ADDRESS}, tried for \d+(\.\d+)?", begin)
        assert end == (
            "no process listens. Is a broker running (`magnetar standalone`), and is this the address of its own "
            "protocol, whose port is 6652 by default?"
        )
        assert failed.value.found == "no process listens"


async def test_closing_does_not_wait_for_a_probe() -> None:
    clock = ManualClock()
    async with connections(clock, operation_timeout_seconds=0.5) as (transport, made):
        transport.answering.clear()
        failing = asyncio.create_task(made.lookup.count_partitions(TOPIC))
        await pass_time(clock, asyncio.create_task(transport.probing.wait()))
        assert not failing.done()
    with pytest.raises(exceptions.ConnectError) as failed:
        await failing
    assert failed.value.found is None
    assert asyncio.all_tasks() == {asyncio.current_task()}


@pytest.mark.parametrize("timeout_s", [1.0, 10.0])
async def test_a_slow_probe_does_not_extend_an_operation(timeout_s: float) -> None:
    """The error has the result of the warning's probe, if that has ended."""
    clock = ManualClock()
    async with connections(clock, operation_timeout_seconds=timeout_s) as (transport, made):
        failing = asyncio.create_task(made.lookup.count_partitions(TOPIC))
        await pass_time(clock, asyncio.create_task(clock.sleep(timeout_s / 2)))
        transport.answering.clear()
        took_s = timeout_s / 2 + await pass_time(clock, failing)
        assert took_s <= timeout_s + LEAST_PROBE_S + 0.1  # two steps of the clock
        with pytest.raises(exceptions.ConnectError) as failed:
            await failing
        assert failed.value.found == (None if timeout_s < WARN_AFTER_S * 2 else "no process listens")


async def test_a_transport_without_probes_causes_a_warning_too(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    transport = InProcessTransport(clock)
    made = core_of(transport, *(f"b{number}:1" for number in range(7)), clock=clock)
    lookups = asyncio.create_task(made.lookup.count_partitions(TOPIC))
    await pass_time(clock, asyncio.create_task(clock.sleep(2)))
    named = "b0:1, b1:1, b2:1, b3:1, b4:1 and 2 more"
    assert warnings_in(caplog) == [f"no broker has answered for 1 s at {named}; still trying"]
    await made.shutdown()
    await pass_time(clock, lookups)
    assert isinstance(lookups.exception(), exceptions.MagnetarException)


@contextlib.contextmanager
def http_server() -> Iterator[str]:
    class Quiet(http.server.BaseHTTPRequestHandler):
        def log_message(self, *arguments: Any) -> None: ...

    with http.server.HTTPServer(("127.0.0.1", 0), Quiet) as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()
        serving.join()


@contextlib.contextmanager
def no_process() -> Iterator[str]:
    with socket.socket() as bound:  # and does not listen
        bound.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{bound.getsockname()[1]}"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("server", "finding"), [(http_server, "{} answers in HTTP, "), (no_process, "no process listens at {}")]
)
def test_a_synchronous_client_at_the_wrong_address(server: Any, finding: str, caplog: pytest.LogCaptureFixture) -> None:
    with server() as address:
        found = finding.format(address)
        no_broker = pytest.raises(exceptions.ConnectError, match=rf"no broker answers at {address}, .*{found}")
        with magnetar.Client(f"magnetar://{address}", operation_timeout_seconds=5) as client, no_broker:
            client.create_producer("t")
        assert re.match(rf"no broker has answered for 1 s at {address}: {found}", warnings_in(caplog)[0])
        scheme = f"pulsar://{address}"
        for kind in (magnetar.Client, aio.Client, AsyncAdmin):
            with pytest.raises(exceptions.InvalidUrl, match=rf"'{scheme}' does not begin with magnetar://.*{found}"):
                kind(scheme)


@pytest.mark.slow
async def test_an_asyncio_client_at_a_listener_for_pulsar_s_clients(caplog: pytest.LogCaptureFixture) -> None:
    async with server_that_answers({b"\0\0\0": CONNECTED}) as address:
        found = f"{address} answers in Pulsar's protocol"
        async with aio.Client(f"magnetar://{address}", operation_timeout_seconds=5) as client:
            with pytest.raises(exceptions.ConnectError, match=found):
                await client.create_reader("t", magnetar.MessageId.earliest)
        async with AsyncAdmin(f"magnetar://{address}", 5) as admin:
            with pytest.raises(exceptions.ConnectError, match=rf"^no broker answers at {address}, .*{found}"):
                await admin.brokers.list()
        await until(lambda: any(found in text for text in warnings_in(caplog)), "it is logged")
        # On the loop's thread, a server of this very loop could not answer.
        with pytest.raises(exceptions.InvalidUrl, match=found):
            await asyncio.to_thread(magnetar.Client, f"pulsar://{address}")


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["pulsar", "http"])
async def test_a_url_of_another_scheme_with_a_broker_s_own_port(scheme: str) -> None:
    transport = GrpcTransport()
    listener: Any = await transport.listen("127.0.0.1:0", FakeBroker())
    try:
        with pytest.raises(exceptions.InvalidUrl) as refused:
            await asyncio.to_thread(magnetar.Client, f"{scheme}://{listener.address}")
    finally:
        await listener.close()
    own = f"{listener.address} looks like a broker's own port: write magnetar://{listener.address}"
    assert str(refused.value).endswith(own)


async def test_a_url_of_another_scheme_does_not_stop_the_event_loop() -> None:
    """On the loop's thread nothing is probed, because a silent server would block it for a second."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        server.setblocking(False)
        url = f"pulsar://127.0.0.1:{server.getsockname()[1]}"
        for kind in (aio.Client, AsyncAdmin):
            with pytest.raises(exceptions.InvalidUrl, match="but is for Pulsar's clients"):
                kind(url)
        with pytest.raises(BlockingIOError):  # no client has connected
            server.accept()


def test_an_invalid_url_of_another_scheme_is_refused_without_a_probe() -> None:
    for url in ("pulsar://", "pulsar://a b:1", "http://user@host:1", "ftp://localhost:1"):
        with pytest.raises(exceptions.InvalidUrl, match=r"write magnetar://host:port\[,host:port…\]$"):
            magnetar.Client(url)
