"""The contract of transports. The test module of each transport subclasses `TransportContract` and creates the
transport.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from magnetar_wire.transport import (
    MAX_TRANSPORT_BYTES,
    Code,
    Connection,
    DeadlinePassed,
    Disconnected,
    Failed,
    NotReached,
    Peer,
    ProbingTransport,
    Refusal,
    Rejected,
    ServiceFailed,
    Stream,
)

DEADLINE_S = 60.0


class Echo:
    """Answers calls with their request, and streams message by message."""

    def __init__(self) -> None:
        self.cancelled = 0
        self.waiting = asyncio.Event()

    async def call(self, peer: Peer, method: str, request: bytes) -> bytes:
        assert peer.address
        if method == "reject":
            raise Refusal(Code.FAILED_PRECONDITION, f"not {request.decode()}")
        if method == "break":
            raise ZeroDivisionError("a detail that stays here")
        if method == "abandon":
            raise ServiceFailed("its disk has failed")
        if method == "errand":  # an error of its own calls is not its answer
            raise Rejected(Code.NOT_FOUND, "somebody else's answer")
        if method == "grow":
            return bytes(MAX_TRANSPORT_BYTES + 1)
        if method == "hang":
            await self._hang()
        return method.encode() + b":" + request

    async def stream(self, peer: Peer, method: str, stream: Stream) -> None:
        if method == "reject":
            await stream.send(b"first")
            raise Refusal(Code.NOT_FOUND, "no such stream")
        if method == "abandon":
            raise ServiceFailed("its disk has failed")
        if method.startswith("finish"):
            await stream.send(b"last")
            await stream.finish()
            if method == "finish and refuse":
                raise Refusal(Code.ABORTED, "after all")
            raise ZeroDivisionError
        if method == "hang":
            await self._hang()
        while (message := await stream.receive()) is not None:
            await stream.send(message)
        await stream.send(b"end")

    async def _hang(self) -> None:
        self.waiting.set()
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            self.cancelled += 1


Body = Callable[[Connection, Echo], Awaitable[None]]


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not condition():
            await asyncio.sleep(0.001)


class TransportContract:
    def make(self) -> ProbingTransport:
        raise NotImplementedError

    def run(self, body: Body) -> None:
        async def whole() -> None:
            transport, service = self.make(), Echo()
            listener = await transport.listen("127.0.0.1:0", service)
            connection = transport.connect(listener.address)
            try:
                await body(connection, service)
            finally:
                await connection.close()
                await listener.close()

        asyncio.run(whole())

    def test_a_call_is_answered(self) -> None:
        async def body(connection: Connection, _service: Echo) -> None:
            assert await connection.call("m", b"x" * 100_000, timeout_s=DEADLINE_S) == b"m:" + b"x" * 100_000

        self.run(body)

    def test_an_address_refuses_connections_where_no_process_listens(self) -> None:
        """OWN-2"""

        async def body() -> None:
            transport = self.make()
            listener = await transport.listen("127.0.0.1:0", Echo())
            assert not await transport.refuses_connections(listener.address, DEADLINE_S)
            await listener.close()
            assert await transport.refuses_connections(listener.address, DEADLINE_S)

        asyncio.run(body())

    def test_rejection_reports_reason_and_service_error_hides_detail(self, caplog: pytest.LogCaptureFixture) -> None:
        async def body(connection: Connection, _service: Echo) -> None:
            with pytest.raises(Rejected, match="not now") as rejected:
                await connection.call("reject", b"now", timeout_s=DEADLINE_S)
            assert rejected.value.code is Code.FAILED_PRECONDITION
            with pytest.raises(Failed) as broken:
                await connection.call("break", b"", timeout_s=DEADLINE_S)
            assert "detail" not in str(broken.value)

        self.run(body)
        assert "a detail that stays here" in caplog.text

    def test_service_failed_error_hides_detail_and_is_not_logged(self, caplog: pytest.LogCaptureFixture) -> None:
        async def body(connection: Connection, _service: Echo) -> None:
            with pytest.raises(Failed) as broken:
                await connection.call("abandon", b"", timeout_s=DEADLINE_S)
            assert "disk" not in str(broken.value)
            stream = connection.open_stream("abandon")
            await stream.send(b"")
            with pytest.raises(Failed):
                await stream.receive()

        self.run(body)
        assert "a request failed" not in caplog.text

    def test_a_deadline_passes_and_the_service_learns_of_it(self) -> None:
        async def body(connection: Connection, service: Echo) -> None:
            # Connected first: otherwise the deadline would pass before the connection.
            await connection.call("m", b"", timeout_s=DEADLINE_S)
            with pytest.raises(DeadlinePassed):
                await connection.call("hang", b"", timeout_s=0.05)
            await until(lambda: service.cancelled == 1)

        self.run(body)

    def test_a_cancelled_caller_cancels_the_call(self) -> None:
        async def body(connection: Connection, service: Echo) -> None:
            call = asyncio.create_task(connection.call("hang", b"", timeout_s=DEADLINE_S))
            await service.waiting.wait()
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            await until(lambda: service.cancelled == 1)

        self.run(body)

    def test_nobody_there_is_not_reached(self) -> None:
        async def whole() -> None:
            transport = self.make()
            listener = await transport.listen("127.0.0.1:0", Echo())
            await listener.close()
            connection = transport.connect(listener.address)
            with pytest.raises(NotReached):
                await connection.call("m", b"", timeout_s=DEADLINE_S)
            with pytest.raises(NotReached):
                await connection.open_stream("m").receive()
            await connection.close()
            with pytest.raises(NotReached):
                await connection.call("m", b"", timeout_s=DEADLINE_S)

        asyncio.run(whole())

    def test_listener_close_disconnects_calls_and_streams_in_flight(self) -> None:
        async def whole() -> None:
            transport, service = self.make(), Echo()
            listener = await transport.listen("127.0.0.1:0", service)
            connection = transport.connect(listener.address)
            call = asyncio.create_task(connection.call("hang", b"", timeout_s=DEADLINE_S))
            stream = connection.open_stream("hang")
            receiving = asyncio.create_task(stream.receive())
            await until(lambda: service.waiting.is_set())
            await listener.close()
            with pytest.raises(Disconnected):
                await call
            with pytest.raises(Disconnected):
                await receiving
            await connection.close()

        asyncio.run(whole())

    def test_connection_close_disconnects_calls_and_streams_in_flight(self) -> None:
        async def body(connection: Connection, service: Echo) -> None:
            call = asyncio.create_task(connection.call("hang", b"", timeout_s=DEADLINE_S))
            stream = connection.open_stream("hang")
            receiving = asyncio.create_task(stream.receive())
            await service.waiting.wait()
            await connection.close()
            for waiting in (call, receiving):
                with pytest.raises(Disconnected):
                    await waiting

        self.run(body)

    def test_stream_preserves_order_and_ends_in_both_directions(self) -> None:
        async def body(connection: Connection, _service: Echo) -> None:
            stream = connection.open_stream("echo")
            sent = [b"%d" % number for number in range(500)]

            async def send() -> None:
                for message in sent:
                    await stream.send(message)
                await stream.finish()

            sending = asyncio.create_task(send())
            received = []
            while (message := await stream.receive()) is not None:
                received.append(message)
            await sending
            assert received == [*sent, b"end"]
            assert await stream.receive() is None

        self.run(body)

    def test_any_bytes_are_a_message(self) -> None:
        async def body(connection: Connection, _service: Echo) -> None:
            stream = connection.open_stream("echo")
            for message in (b"", b"\xff", b"\xff\xff", b"\xff\x00", b"\x00", b"\x00\xff", b"", b"x"):
                await stream.send(message)
                assert await stream.receive() == message
                assert await connection.call("m", message, timeout_s=DEADLINE_S) == b"m:" + message
            await stream.finish()
            assert await stream.receive() == b"end"
            assert await stream.receive() is None

        self.run(body)

    def test_a_message_of_the_largest_size_passes(self) -> None:
        async def body(connection: Connection, _service: Echo) -> None:
            stream = connection.open_stream("echo")
            largest = b"\xff" * MAX_TRANSPORT_BYTES
            await stream.send(largest)
            assert await stream.receive() == largest
            assert await connection.call("", largest[1:], timeout_s=DEADLINE_S) == b":" + largest[1:]

        self.run(body)

    def test_a_sender_waits_for_a_slow_receiver(self) -> None:
        async def body(connection: Connection, _service: Echo) -> None:
            stream = connection.open_stream("hang")
            sent = 0

            async def send() -> None:
                nonlocal sent
                while True:
                    await stream.send(bytes(1_000_000))
                    sent += 1

            sending = asyncio.create_task(send())
            for _ in range(2_000):
                await asyncio.sleep(0)
            assert not sending.done()
            assert sent < 500
            stream.cancel()
            with pytest.raises(Disconnected):
                await sending

        self.run(body)

    def test_stream_delivers_messages_sent_before_rejection(self) -> None:
        async def body(connection: Connection, _service: Echo) -> None:
            stream = connection.open_stream("reject")
            assert await stream.receive() == b"first"
            with pytest.raises(Rejected, match="no such stream") as rejected:
                await stream.receive()
            assert rejected.value.code is Code.NOT_FOUND

        self.run(body)

    def test_cancelling_a_receive_loses_no_message(self) -> None:
        async def body(connection: Connection, _service: Echo) -> None:
            stream = connection.open_stream("echo")
            for number in range(50):
                receiving = asyncio.create_task(stream.receive())
                await stream.send(b"%d" % number)
                for _ in range(number % 5):
                    await asyncio.sleep(0)
                receiving.cancel()
                await asyncio.wait([receiving])
                got = await stream.receive() if receiving.cancelled() else receiving.result()
                assert got == b"%d" % number

        self.run(body)

    def test_a_cancelled_stream_cancels_the_service(self) -> None:
        async def body(connection: Connection, service: Echo) -> None:
            stream = connection.open_stream("hang")
            await stream.send(b"x")
            await service.waiting.wait()
            stream.cancel()
            await until(lambda: service.cancelled == 1)
            with pytest.raises(Disconnected):
                await stream.receive()

        self.run(body)

    def test_a_message_over_the_limit_is_the_sender_s_mistake(self) -> None:
        async def body(connection: Connection, _service: Echo) -> None:
            for mistake in (
                connection.call("m", bytes(MAX_TRANSPORT_BYTES + 1), timeout_s=DEADLINE_S),
                connection.open_stream("echo").send(bytes(MAX_TRANSPORT_BYTES + 1)),
            ):
                with pytest.raises(ValueError, match="above the limit"):
                    await mistake
            with pytest.raises(Failed):  # the service's mistake, when all may be done
                await connection.call("grow", b"", timeout_s=DEADLINE_S)

        self.run(body)

    def test_a_rejection_that_a_service_met_elsewhere_is_not_its_own(self) -> None:
        async def body(connection: Connection, _service: Echo) -> None:
            with pytest.raises(Failed):
                await connection.call("errand", b"", timeout_s=DEADLINE_S)

        self.run(body)

    @pytest.mark.parametrize(("method", "error"), [("finish and refuse", Rejected), ("finish and fail", Failed)])
    def test_a_service_that_fails_behind_its_last_message_has_failed(self, method: str, error: type[Exception]) -> None:
        async def body(connection: Connection, _service: Echo) -> None:
            stream = connection.open_stream(method)
            assert await stream.receive() == b"last"
            with pytest.raises(error):
                await stream.receive()

        self.run(body)

    def test_a_stream_has_one_sender_and_one_receiver_at_a_time(self) -> None:
        async def body(connection: Connection, service: Echo) -> None:
            stream = connection.open_stream("hang")
            first = asyncio.create_task(stream.receive())
            await service.waiting.wait()
            with pytest.raises(RuntimeError, match="two tasks receive"):
                await stream.receive()
            await stream.finish()
            with pytest.raises(RuntimeError, match="finished"):
                await stream.send(b"late")
            stream.cancel()
            with pytest.raises(Disconnected):
                await first

        self.run(body)

    def test_closing_a_listener_again_leaves_its_successor_alone(self) -> None:
        async def whole() -> None:
            transport = self.make()
            first = await transport.listen("127.0.0.1:0", Echo())
            await first.close()
            second = await transport.listen(first.address, Echo())
            await first.close()
            connection = transport.connect(second.address)
            assert await connection.call("m", b"x", timeout_s=DEADLINE_S) == b"m:x"
            await connection.close()
            await second.close()

        asyncio.run(whole())

    def test_address_has_one_listener_at_a_time(self) -> None:
        async def whole() -> None:
            transport = self.make()
            listener = await transport.listen("127.0.0.1:0", Echo())
            with pytest.raises(NotReached):
                await transport.listen(listener.address, Echo())
            await listener.close()
            again = await transport.listen(listener.address, Echo())
            await again.close()

        asyncio.run(whole())
