"""Decoding, limits and the comparison of handlers with the table of admin calls."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from google.protobuf.message import Message

from magnetar_broker.admin.admin_service import CallServer, check_complete, find_handlers, refuse_excess_call
from magnetar_broker.begun_changes import note_change
from magnetar_broker.concurrency_limit import ConcurrencyLimit
from magnetar_broker.errors import RequestNotStarted
from magnetar_protos import admin_pb2 as pb
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_wire.admin.calls import ADMIN_CALLS
from magnetar_wire.transport import Code, Refusal
from tests.running import until


class Tenants:
    async def tenant(self, request: pb.TenantRequest) -> pb.TenantAnswer:
        return pb.TenantAnswer(settings=pb.TenantSettings(admin_roles=[request.tenant]))

    async def _private(self) -> None: ...


async def test_fields_that_the_broker_does_not_know_are_refused() -> None:
    """A field that the broker does not know would have no effect."""
    server = CallServer("admin", find_handlers([Tenants()]), lambda call: ConcurrencyLimit(1, refuse_excess_call))
    request = pb.TenantRequest(tenant="acme").SerializeToString()
    assert pb.TenantAnswer.FromString(await server.serve("tenant", request)).settings.admin_roles == ["acme"]
    unknown_field = b"\x9a\x06\x01x"
    answer = pb.TenantAnswer.FromString(await server.serve("tenant", request + unknown_field))
    assert answer.problem.code == ErrorCode.UNSUPPORTED


async def test_calls_above_the_limit_are_refused() -> None:
    done = asyncio.Event()

    async def hang(request: Any) -> Message:
        await done.wait()
        return pb.Done()

    server = CallServer("admin", {"create_tenant": hang}, lambda call: ConcurrencyLimit(1, refuse_excess_call))
    first = asyncio.create_task(server.serve("create_tenant", b""))
    await asyncio.sleep(0)
    with pytest.raises(Refusal) as refused:
        await server.serve("create_tenant", b"")
    assert refused.value.code is Code.RESOURCE_EXHAUSTED
    done.set()
    await first
    await server.serve("create_tenant", b"")


def test_each_row_has_one_handler_and_each_handler_a_row() -> None:
    """A broker that lacks a handler does not start."""
    rows = [ADMIN_CALLS["tenant"]]
    check_complete(find_handlers([Tenants()]), rows)
    with pytest.raises(ValueError, match=r"without a handler: \['tenants'\]"):
        check_complete(find_handlers([Tenants()]), [*rows, ADMIN_CALLS["tenants"]])
    with pytest.raises(ValueError, match=r"without a row .*: \['tenant'\]"):
        check_complete(find_handlers([Tenants()]), [])
    with pytest.raises(ValueError, match="tenant has two handlers"):
        find_handlers([Tenants(), Tenants()])


async def test_changes_are_finished_though_the_client_disconnects() -> None:
    begun, go_on, ended = asyncio.Event(), asyncio.Event(), list[str]()

    async def work(request: pb.TenantRequest) -> Message:
        begun.set()
        try:
            await go_on.wait()
            ended.append("done")
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise
        return pb.Done()

    limit = ConcurrencyLimit(2, refuse_excess_call)
    handlers = {"create_tenant": work, "tenant": work}
    server = CallServer("admin", handlers, lambda call: limit)

    async def leave(name: str) -> None:
        begun.clear()
        call = asyncio.create_task(server.call(name, pb.TenantRequest()))
        await begun.wait()
        call.cancel()
        await asyncio.wait([call])

    await leave("tenant")
    assert (ended, limit.in_flight) == (["cancelled"], 0)
    await leave("create_tenant")
    assert limit.in_flight == 1
    go_on.set()
    await until(lambda: not limit.in_flight, "it has ended")
    assert ended[1:] == ["done"]
    # At the end of the session they are cancelled, and reported as unknown.
    go_on.clear()
    begun.clear()
    waiting = asyncio.create_task(server.call("create_tenant", pb.TenantRequest()))
    await begun.wait()
    await server.close()
    answer: Any = await waiting
    assert (ended[2:], answer.problem.code) == (["cancelled"], ErrorCode.UNKNOWN_ERROR)


async def test_not_ready_after_a_change_is_reported_as_unknown() -> None:
    """SERVICE_NOT_READY promises that nothing was done: clients repeat the call."""

    async def fail(request: pb.TenantRequest) -> Message:
        async def step() -> None:
            if request.tenant:
                note_change()

        await asyncio.create_task(step())
        raise RequestNotStarted("the owner of the rest can't be reached")

    server = CallServer("admin", {"create_tenant": fail}, lambda call: ConcurrencyLimit(1, refuse_excess_call))
    for tenant, code in (("", ErrorCode.SERVICE_NOT_READY), ("x", ErrorCode.UNKNOWN_ERROR)):
        answer: Any = await server.call("create_tenant", pb.TenantRequest(tenant=tenant))
        assert answer.problem.code == code
