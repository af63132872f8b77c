"""An administrator's way to several brokers: whom it asks next, and what it never asks twice."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from google.protobuf.message import Message

from magnetar import exceptions
from magnetar.admin import NamespacePolicies
from magnetar.admin._calls import AdminCalls
from magnetar_protos import admin_pb2 as pb
from magnetar_protos.broker_pb2 import ErrorCode, Problem
from magnetar_testing.randomness import SeededRandomness
from magnetar_wire.transport import (
    Code,
    Connection,
    DeadlinePassed,
    Disconnected,
    Failed,
    Listener,
    NotReached,
    Rejected,
    Service,
    Stream,
)
from tests.running import run
from tests.unit.hurried_clock import HurriedClock

TIMEOUT_S = 30.0
SILENT = Exception("no answer at all")
TENANTS = pb.NamesAnswer(names=["public"])

Answer = Message | Exception


def problem(code: ErrorCode) -> Problem:
    return Problem(code=code, text="the broker's problem")


class Brokers:
    """A transport: what each broker answers, in turn; its last answer again and again."""

    def __init__(self, **answers: list[Answer]) -> None:
        self.clock = HurriedClock()
        self.requests: list[str] = []
        self.timeouts: list[float] = []
        self._answers = {f"{name}:1": answer for name, answer in answers.items()}
        self.calls = AdminCalls(
            "magnetar://" + ",".join(self._answers), TIMEOUT_S, lambda: self, self.clock, SeededRandomness(1)
        )

    def connect(self, address: str) -> Connection:
        return _To(self, address)

    async def listen(self, address: str, service: Service) -> Listener:
        raise NotImplementedError

    async def answer(self, address: str, timeout_s: float) -> bytes:
        self.requests.append(address.removesuffix(":1"))
        self.timeouts.append(timeout_s)
        answer = self._answers[address]
        one = answer.pop(0) if len(answer) > 1 else answer[0]
        if isinstance(one, DeadlinePassed):
            self.clock.advance(timeout_s)
        if one is SILENT:
            asyncio.get_running_loop().call_soon(self.clock.advance, 3.0)
            await asyncio.Event().wait()
        if isinstance(one, Exception):
            raise one
        return one.SerializeToString()

    def look(self) -> list[str]:
        return run(self.calls.names("tenants"))

    def change(self) -> None:
        run(self.calls.call("create_tenant", tenant="t"))


class _To:
    def __init__(self, brokers: Brokers, address: str) -> None:
        self._brokers = brokers
        self._address = address

    async def call(self, method: str, request: bytes, *, timeout_s: float) -> bytes:
        return await self._brokers.answer(self._address, timeout_s)

    def open_stream(self, method: str) -> Stream:
        raise NotImplementedError

    def reset_backoff(self) -> None: ...

    async def close(self) -> None: ...


NOTHING_DONE: list[Callable[[], Answer]] = [
    lambda: NotReached("nobody there"),
    lambda: Rejected(Code.UNAVAILABLE, "it has no metadata session"),
    lambda: Rejected(Code.RESOURCE_EXHAUSTED, "too much to do"),
    lambda: pb.Done(problem=problem(ErrorCode.SERVICE_NOT_READY)),
]
LOST: list[Callable[[], Answer]] = [
    lambda: Disconnected("cut"),
    lambda: DeadlinePassed("no answer"),
    lambda: Failed("a fault"),
    lambda: pb.Done(problem=problem(ErrorCode.UNKNOWN_ERROR)),
    lambda: pb.Done(problem=problem(ErrorCode.METADATA_ERROR)),
]


@pytest.mark.parametrize("trouble", [*NOTHING_DONE, *LOST])
def test_read_call_tries_the_next_broker_after_any_error(trouble: Callable[[], Answer]) -> None:
    brokers = Brokers(a=[trouble()], b=[trouble()], c=[TENANTS])
    assert brokers.look() == ["public"]
    assert brokers.requests == ["a", "b", "c"]
    # The one that answered is called first from then on.
    assert brokers.look() == ["public"]
    assert brokers.requests[3:] == ["c"]


def test_internal_error_of_a_broker_is_raised_without_retry() -> None:
    """The next one would meet it too, and each writes a traceback."""
    brokers = Brokers(a=[pb.NamesAnswer(problem=problem(ErrorCode.INTERNAL_ERROR))], b=[TENANTS])
    with pytest.raises(exceptions.BrokerFailed, match="the broker's problem"):
        brokers.look()
    assert brokers.requests == ["a"]


@pytest.mark.parametrize("trouble", NOTHING_DONE)
def test_change_is_retried_on_the_next_broker_if_not_executed(trouble: Callable[[], Answer]) -> None:
    brokers = Brokers(a=[trouble()], b=[pb.Done()])
    brokers.change()
    assert brokers.requests == ["a", "b"]
    # All of them, for a moment.
    brokers = Brokers(a=[trouble()], b=[trouble(), trouble(), pb.Done()])
    brokers.change()
    assert brokers.requests == ["a", "b"] * 3


@pytest.mark.parametrize("trouble", LOST)
def test_change_with_a_lost_answer_is_never_retried(trouble: Callable[[], Answer]) -> None:
    """Unknown is not no."""
    brokers = Brokers(a=[trouble()], b=[pb.Done()])
    with pytest.raises(exceptions.MagnetarException) as unknown:
        brokers.change()
    assert brokers.requests == ["a"]
    if isinstance(trouble(), Exception):
        assert isinstance(unknown.value, exceptions.ConnectError)
        assert "not known" in str(unknown.value)


def test_read_call_tries_another_broker_while_one_is_silent() -> None:
    brokers = Brokers(a=[SILENT], b=[SILENT], c=[TENANTS])
    began = brokers.clock.monotonic()
    assert brokers.look() == ["public"]
    assert brokers.requests == ["a", "b", "c"]
    assert brokers.clock.monotonic() - began < TIMEOUT_S / 3
    assert brokers.look() == ["public"]
    assert brokers.requests[3:] == ["c"]


def test_unanswered_change_times_out_and_next_uses_another_broker() -> None:
    brokers = Brokers(a=[NotReached("nobody there")], b=[DeadlinePassed("no answer")], c=[pb.Done()])
    with pytest.raises(exceptions.ConnectError, match="not known"):
        brokers.change()
    assert (brokers.requests, brokers.timeouts) == (["a", "b"], [TIMEOUT_S, TIMEOUT_S])
    brokers.change()
    assert brokers.requests[2:] == ["c"]


def test_a_no_is_a_no_at_every_broker() -> None:
    errors: list[tuple[Answer, type[exceptions.MagnetarException]]] = [
        (pb.Done(problem=problem(ErrorCode.ALREADY_EXISTS)), exceptions.AlreadyExists),
        (pb.Done(problem=problem(ErrorCode.NOT_FOUND)), exceptions.NotFound),
        (Rejected(Code.UNIMPLEMENTED, "an old broker"), exceptions.OperationNotSupported),
        (Rejected(Code.INVALID_ARGUMENT, "it can't be read"), exceptions.InvalidArgument),
    ]
    for answer, kind in errors:
        for ask in (Brokers.change, Brokers.look):
            brokers = Brokers(a=[answer], b=[pb.Done()])
            with pytest.raises(kind):
                ask(brokers)
            assert brokers.requests == ["a"]


def test_admin_calls_stop_retrying_at_the_timeout() -> None:
    for ask in (Brokers.change, Brokers.look):
        brokers = Brokers(a=[NotReached("nobody there")], b=[Rejected(Code.UNAVAILABLE, "no session")])
        began = brokers.clock.monotonic()
        with pytest.raises(exceptions.ConnectError):
            ask(brokers)
        assert TIMEOUT_S / 2 < brokers.clock.monotonic() - began <= TIMEOUT_S
        assert brokers.requests[:4] == ["a", "b", "a", "b"]
        assert len(brokers.requests) < 100


@pytest.mark.parametrize("trouble", [lambda: Disconnected("cut"), lambda: DeadlinePassed("silent")])
def test_failed_read_call_error_names_brokers_and_duration(trouble: Callable[[], Answer]) -> None:
    """It changes nothing, so whether it was done does not matter; it does of a change."""
    brokers = Brokers(a=[trouble()], b=[trouble()])
    with pytest.raises(
        exceptions.ConnectError, match=r"^admin\.tenants failed at a:1, b:1, tried for [0-9.]+ s: "
    ) as raised:
        brokers.look()
    assert "not known" not in str(raised.value)
    with pytest.raises(exceptions.ConnectError, match=r"^whether admin\.create_tenant was done is not known: "):
        Brokers(a=[trouble()]).change()
    brokers = Brokers(a=[NotReached("nobody answers at a:1")])
    with pytest.raises(
        exceptions.ConnectError, match=r"^no broker can be reached at a:1, tried for [23][0-9.]* s: nob"
    ):
        brokers.look()
    many = Brokers(**{f"broker{number}": [trouble()] for number in range(7)})
    with pytest.raises(exceptions.ConnectError, match=r"at broker0:1, .*, broker4:1, …, tried for"):
        many.look()


def test_an_answer_that_cannot_be_read_is_an_error_of_ours() -> None:
    class Nonsense:
        def SerializeToString(self) -> bytes:
            return b"\xff"

    nonsense: Any = Nonsense()
    brokers = Brokers(a=[nonsense], b=[pb.Done()])
    with pytest.raises(exceptions.UnknownError, match="can't be read"):
        brokers.change()
    assert brokers.requests == ["a"]


def test_a_look_that_a_broker_never_answers_is_sent_again() -> None:
    """An operation that is retried for ten minutes does not wait ten minutes for one lost answer."""
    brokers = Brokers(a=[DeadlinePassed("no answer"), TENANTS])
    brokers.calls.set_operation_timeout(600.0)
    began = brokers.clock.monotonic()
    assert brokers.look() == ["public"]
    assert brokers.timeouts[0] == 60.0
    assert brokers.clock.monotonic() - began < 100.0


def test_the_operation_time_out_can_be_raised() -> None:
    brokers = Brokers(a=[NotReached("it is restarted")])
    for seconds in (5.0, 500.0):
        brokers.calls.set_operation_timeout(seconds)
        began = brokers.clock.monotonic()
        with pytest.raises(exceptions.ConnectError):
            brokers.look()
        assert seconds - 3.0 <= brokers.clock.monotonic() - began <= seconds


def test_a_request_that_is_too_large_is_refused() -> None:
    brokers = Brokers(a=[pb.Done()])
    with pytest.raises(exceptions.InvalidArgument, match="create_tenant has 10,000,"):
        run(brokers.calls.call("create_tenant", tenant="t" * 10_000_000))
    assert brokers.requests == []


def test_a_wrong_policy_is_named_once() -> None:
    brokers = Brokers(a=[pb.Done()])
    policies = NamespacePolicies(schema_compatibility="NOPE")
    with pytest.raises(exceptions.InvalidArgument) as raised:
        run(brokers.calls.call("create_namespace", namespace="a/b", policies=policies))
    assert str(raised.value).count("NOPE") == 1
