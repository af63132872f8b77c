"""What the server overrides of gRPC's library is really there and really used: another version may do without."""

from __future__ import annotations

import sys

import pytest
from grpc._cython import cygrpc

from magnetar_wire.grpc_transport import GrpcTransport, known_methods
from magnetar_wire.transport import NotReached
from tests.contract.transport_contract import Echo
from tests.running import run


def test_a_version_without_what_is_overridden_is_refused_at_import() -> None:
    class Older:
        def add_registered_method_handlers(self) -> None: ...

    with pytest.raises(ImportError, match=r"grpcio 1\.76\.0 has no _make_request_call_future in "):
        known_methods.check_version(Older, "1.76.0")


async def test_a_server_with_a_version_without_them_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client is not asked: grpcio has no upper bound, which would conflict with other packages."""
    for name in ("listener", "known_methods"):
        monkeypatch.delitem(sys.modules, f"magnetar_wire.grpc_transport.{name}", raising=False)
    monkeypatch.setattr(cygrpc, "AioServer", type("AioServer", (), {}))

    transport = GrpcTransport()
    transport.connect("127.0.0.1:1")
    with pytest.raises(NotReached, match=r"has no _make_request_call_future .*pip install 'grpcio>=1\.84,<1\.86'"):
        await transport.listen("127.0.0.1:0", Echo())


def test_a_version_that_was_never_tested_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    known_methods.check_version(cygrpc.AioServer, "1.85.7")
    assert not caplog.records
    known_methods.check_version(cygrpc.AioServer, "1.86.0rc1")
    assert "but 1.86.0rc1 is installed" in caplog.text


def test_a_version_that_does_not_call_what_is_overridden_serves_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    class Deaf(cygrpc.AioServer):  # type: ignore[misc]
        others_left_alone = None

    async def scenario() -> None:
        with pytest.raises(NotReached, match="accepts requests in an unknown way"):
            await GrpcTransport().listen("127.0.0.1:0", Echo())

    monkeypatch.setattr(known_methods, "_KnownMethods", Deaf)
    monkeypatch.setattr(known_methods, "_BEGINS_S", 0.01)
    run(scenario())
