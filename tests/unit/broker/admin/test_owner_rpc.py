"""Calls at a topic's owner: which are repeated, and when their outcome is reported as unknown."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

import pytest
from google.protobuf.message import Message

from magnetar_broker.admin.admin_service import CallServer, build_broker_call_server
from magnetar_broker.admin.owner_rpc import OwnerRpc
from magnetar_broker.begun_changes import watch_changes
from magnetar_broker.errors import BrokerError, RequestNotStarted, TopicUnloaded
from magnetar_broker.ownership.advertised_addresses import AdvertisedAddresses
from magnetar_broker.ownership.interface import TopicOwner
from magnetar_broker.peers import PeerConnections
from magnetar_protos import admin_pb2 as pb
from magnetar_protos.broker_pb2 import ErrorCode, Problem
from magnetar_testing.clock import ManualClock
from magnetar_wire.topic_name import TopicName
from magnetar_wire.transport import (
    Code,
    Connection,
    DeadlinePassed,
    Disconnected,
    Failed,
    Listener,
    NotReached,
    Refusal,
    Rejected,
    Service,
    Stream,
    TransportError,
)
from tests.fake_ownership import FakeOwnership
from tests.running import run
from tests.unit.hurried_clock import HurriedClock

TOPIC = TopicName.parse("orders")
REQUEST = pb.TopicRequest(topic=str(TOPIC))
TIMEOUT_S = 20.0


def owner(broker_id: str, *, is_local: bool = False) -> TopicOwner:
    return TopicOwner(broker_id, AdvertisedAddresses((("internal", f"{broker_id}:1"),)), is_local=is_local)


class Answers:
    """A transport with the responses of each broker, in order, or the errors that its calls raise."""

    def __init__(self, clock: ManualClock, **answers: list[Message | Exception]) -> None:
        self._clock = clock
        self._left = {f"{name}:1": list(of_broker) for name, of_broker in answers.items()}
        self.calls: list[tuple[str, str, bytes]] = []
        self.timeouts: list[float] = []

    def connect(self, address: str) -> Connection:
        return _To(self, address)

    async def refuses_connections(self, address: str, timeout_s: float) -> bool:
        raise NotImplementedError

    async def listen(self, address: str, service: Service) -> Listener:
        raise NotImplementedError

    def answer(self, address: str, method: str, request: bytes, timeout_s: float) -> bytes:
        self.calls.append((address, method, request))
        self.timeouts.append(timeout_s)
        left = self._left[address]
        response = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(response, DeadlinePassed):
            self._clock.advance(timeout_s)
        if isinstance(response, Exception):
            raise response
        return response.SerializeToString()


class _To:
    def __init__(self, answers: Answers, address: str) -> None:
        self._answers = answers
        self._address = address

    async def call(self, method: str, request: bytes, *, timeout_s: float) -> bytes:
        return self._answers.answer(self._address, method, request, timeout_s)

    def open_stream(self, method: str) -> Stream:
        raise NotImplementedError

    def reset_backoff(self) -> None: ...

    async def close(self) -> None: ...


class Scene:
    def __init__(
        self, owners: FakeOwnership, handle: Callable[[], Message] = pb.Done, **answers: list[Message | Exception]
    ):
        self.clock = HurriedClock()
        self.owners = owners
        self.transport = Answers(self.clock, **answers)
        self.local_calls = 0

        async def do(request: pb.TopicRequest) -> Message:
            assert request == REQUEST
            self.local_calls += 1
            return handle()

        self.server = build_broker_call_server({"truncate_topic": do})
        self.rpc = OwnerRpc({"truncate_topic": do}, owners, PeerConnections(self.transport), self.clock, TIMEOUT_S)

    def ask(self, *, repeat: bool = False) -> Message:
        answer: Message = run(self.rpc.call_topic_owner(TOPIC, "truncate_topic", REQUEST, repeat=repeat))
        return answer


def fails(scene: Scene, *, repeat: bool = False) -> BrokerError:
    with pytest.raises(BrokerError) as failed:
        scene.ask(repeat=repeat)
    return failed.value


def raises(error: BrokerError) -> Callable[[], Message]:
    def do() -> Message:
        raise error.again()

    return do


def test_call_is_executed_locally_or_sent_to_the_owner() -> None:
    scene = Scene(FakeOwnership(owner("a", is_local=True)))
    scene.ask()
    assert (scene.local_calls, scene.transport.calls) == (1, [])
    scene = Scene(FakeOwnership(owner("b")), b=[pb.Done()])
    scene.ask()
    assert scene.local_calls == 0
    assert scene.transport.calls == [("b:1", "here.truncate_topic", REQUEST.SerializeToString())]


@pytest.mark.parametrize("repeat", [False, True])
@pytest.mark.parametrize(
    "no",
    [
        NotReached("nobody there"),
        Rejected(Code.UNAVAILABLE, "another broker owns it"),
        Rejected(Code.RESOURCE_EXHAUSTED, "too many"),
    ],
)
def test_unexecuted_call_is_retried_at_the_new_owner(no: TransportError, repeat: bool) -> None:
    """OWN-1: a call that comes while a bundle moves, or its broker has just died, waits for the next owner."""
    scene = Scene(FakeOwnership(owner("b"), owner("b"), owner("c")), b=[no], c=[pb.Done()])
    scene.ask(repeat=repeat)
    assert [call[0] for call in scene.transport.calls] == ["b:1", "b:1", "c:1"]
    # The same in this broker, and if the owner is unknown.
    error = RequestNotStarted("another broker owns it")
    scene = Scene(FakeOwnership(owner("a", is_local=True), owner("c")), raises(error), c=[pb.Done()])
    scene.ask(repeat=repeat)
    assert (scene.local_calls, len(scene.transport.calls)) == (1, 1)
    scene = Scene(FakeOwnership(TopicUnloaded("nobody knows"), owner("c")), c=[pb.Done()])
    scene.ask(repeat=repeat)
    assert len(scene.transport.calls) == 1


def test_retries_and_timeouts_are_bounded() -> None:
    scene = Scene(FakeOwnership(owner("b")), b=[Rejected(Code.UNAVAILABLE, "another broker owns it")])
    assert fails(scene).code == ErrorCode.SERVICE_NOT_READY
    assert 5 < scene.owners.lookups < 100
    scene = Scene(FakeOwnership(owner("b")), b=[DeadlinePassed("no answer")])
    assert fails(scene).code == ErrorCode.UNKNOWN_ERROR
    assert scene.transport.timeouts == [TIMEOUT_S]
    scene = Scene(FakeOwnership(owner("b")), b=[DeadlinePassed("no answer")])
    assert fails(scene, repeat=True).code == ErrorCode.UNKNOWN_ERROR
    # If the owner hangs, another one may be found in time.
    assert scene.transport.timeouts[:2] == [3.0, 6.0]
    assert sum(scene.transport.timeouts) <= TIMEOUT_S + 1


@pytest.mark.parametrize(
    "lost", [Disconnected("cut"), DeadlinePassed("no answer"), Failed("a fault"), Rejected(Code.ABORTED, "a no")]
)
def test_lost_response_is_unknown_unless_call_is_repeatable(lost: TransportError) -> None:
    """Unknown is not no, and a change is not repeated by itself."""
    responses: list[Message | Exception] = [lost, pb.Done()]
    scene = Scene(FakeOwnership(owner("b")), b=list(responses))
    if isinstance(lost, Rejected):
        scene.ask()  # a refusal is a refusal, with any code
        return
    error = fails(scene)
    assert (error.code, len(scene.transport.calls)) == (ErrorCode.UNKNOWN_ERROR, 1)
    assert "here.truncate_topic" in str(error)
    scene = Scene(FakeOwnership(owner("b")), b=list(responses))
    scene.ask(repeat=True)
    assert len(scene.transport.calls) == 2


def test_topic_unload_during_change_makes_outcome_unknown() -> None:
    problem = Problem(code=ErrorCode.SERVICE_NOT_READY, text="the topic was unloaded")
    scene = Scene(FakeOwnership(owner("b")), b=[pb.Done(problem=problem), pb.Done()])
    assert fails(scene).code == ErrorCode.UNKNOWN_ERROR
    scene = Scene(FakeOwnership(owner("a", is_local=True)), raises(TopicUnloaded("it was unloaded")))
    assert fails(scene).code == ErrorCode.UNKNOWN_ERROR
    assert scene.local_calls == 1
    scene = Scene(FakeOwnership(owner("b")), b=[pb.Done(problem=problem), pb.Done()])
    scene.ask(repeat=True)


def test_owner_error_is_returned_to_the_caller() -> None:
    problem = Problem(code=ErrorCode.NOT_ALLOWED, text="in use")
    scene = Scene(FakeOwnership(owner("b")), b=[pb.Done(problem=problem)])
    error = fails(scene, repeat=True)
    assert (error.code, str(error), len(scene.transport.calls)) == (ErrorCode.NOT_ALLOWED, "in use", 1)
    scene = Scene(FakeOwnership(BrokerError(ErrorCode.NOT_FOUND, "no such namespace")))
    assert fails(scene, repeat=True).code == ErrorCode.NOT_FOUND
    for no, code in (
        (Rejected(Code.UNIMPLEMENTED, "an old broker"), ErrorCode.UNSUPPORTED),
        (Rejected(Code.INVALID_ARGUMENT, "it can't be read"), ErrorCode.INVALID_ARGUMENT),
    ):
        scene = Scene(FakeOwnership(owner("b")), b=[no])
        assert (fails(scene, repeat=True).code, len(scene.transport.calls)) == (code, 1)


def served(server: CallServer, name: str, request: bytes) -> pb.Done:
    return pb.Done.FromString(run(server.serve(name, request)))


def refused(server: CallServer, name: str, request: bytes) -> Code:
    with pytest.raises(Refusal) as refusal:
        run(server.serve(name, request))
    return refusal.value.code


def test_forwarded_call_is_never_forwarded_again() -> None:
    """Two brokers that each take the other one for the owner don't send a call back and forth."""
    scene = Scene(FakeOwnership(owner("b")), raises(RequestNotStarted("another broker owns it")), b=[pb.Done()])
    assert refused(scene.server, "truncate_topic", REQUEST.SerializeToString()) is Code.UNAVAILABLE
    assert (scene.owners.lookups, scene.transport.calls) == (0, [])


def test_failed_forwarded_call_returns_a_specific_error() -> None:
    request = REQUEST.SerializeToString()
    scene = Scene(FakeOwnership(owner("a", is_local=True)), raises(BrokerError(ErrorCode.NOT_ALLOWED, "in use")))
    assert served(scene.server, "truncate_topic", request).problem.code == ErrorCode.NOT_ALLOWED
    assert refused(scene.server, "format_disk", request) is Code.UNIMPLEMENTED
    assert refused(scene.server, "truncate_topic", b"\xff") is Code.INVALID_ARGUMENT

    def fault() -> Message:
        raise ZeroDivisionError

    scene = Scene(FakeOwnership(owner("a", is_local=True)), fault)
    problem = served(scene.server, "truncate_topic", request).problem
    assert (problem.code, problem.text) == (ErrorCode.INTERNAL_ERROR, "the broker failed: ZeroDivisionError")


def test_a_fault_of_the_owner_is_met_once() -> None:
    """Although the call may be repeated: it would fail again."""
    problem = Problem(code=ErrorCode.INTERNAL_ERROR, text="the broker failed: ZeroDivisionError")
    scene = Scene(FakeOwnership(owner("b")), b=[pb.Done(problem=problem), pb.Done()])
    assert fails(scene, repeat=True).code == ErrorCode.INTERNAL_ERROR
    assert len(scene.transport.calls) == 1


async def test_other_brokers_calls_are_bounded() -> None:
    done = asyncio.Event()

    async def hang(request: Message) -> Message:
        await done.wait()
        return pb.Done()

    server = build_broker_call_server({"expire": hang})
    calls = [asyncio.create_task(server.serve("expire", b"")) for _ in range(256)]
    await asyncio.sleep(0)
    with pytest.raises(Refusal) as refusal:
        await server.serve("expire", b"")
    assert refusal.value.code is Code.RESOURCE_EXHAUSTED
    calls.pop().cancel()
    done.set()
    await asyncio.gather(*calls)
    await server.serve("expire", b"")


def test_what_an_owner_may_have_changed_is_noted() -> None:
    """A call that fails later on is then reported as unknown, though its last step was not begun."""
    not_ready = TopicUnloaded("nobody owns it now")
    for answer, may_be_made in (
        (pb.Done(), True),
        (pb.Done(problem=Problem(code=ErrorCode.NOT_ALLOWED)), False),
        (pb.Done(problem=Problem(code=ErrorCode.PERSISTENCE_ERROR)), True),
        (Rejected(Code.UNAVAILABLE, "another broker owns it"), False),
        (Disconnected("cut"), True),
    ):
        with watch_changes() as begun, suppress(BrokerError):
            Scene(FakeOwnership(owner("b")), b=[answer]).ask()
        assert begun.may_be_made == may_be_made, answer
    # The answer of the first attempt is lost, and then there is no owner.
    scene = Scene(FakeOwnership(owner("b"), not_ready), b=[Disconnected("cut")])
    with watch_changes() as begun:
        error = fails(scene, repeat=True)
    assert error.code == ErrorCode.SERVICE_NOT_READY
    assert begun.describe_failure(error).code == ErrorCode.UNKNOWN_ERROR
