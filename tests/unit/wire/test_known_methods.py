"""The parts of gRPC's library that the server overrides exist and are used: another version may lack them."""

from __future__ import annotations

import sys

import pytest
from grpc._cython import cygrpc

from magnetar_wire.grpc_transport import GrpcTransport, known_methods
from magnetar_wire.transport import NotReached
from tests.contract.transport_contract import Echo
from tests.running import run


def test_a_version_without_the_overridden_methods_is_refused_at_import() -> None:
    class Older:
        def add_registered_method_handlers(self) -> None: ...

    with pytest.raises(ImportError, match=r"grpcio 1\.76\.0 has no _make_request_call_future in "):
        known_methods.check_version(Older, "1.76.0")


async def test_the_error_names_the_version_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients are not affected: grpcio has no upper limit, which would conflict with other packages."""
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


def test_a_version_that_does_not_call_the_overridden_methods_is_refused_at_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Deaf(cygrpc.AioServer):  # type: ignore[misc]
        on_other_methods_requested = None

    async def scenario() -> None:
        with pytest.raises(NotReached, match="accepts requests in an unknown way"):
            await GrpcTransport().listen("127.0.0.1:0", Echo())

    monkeypatch.setattr(known_methods, "_KnownMethods", Deaf)
    monkeypatch.setattr(known_methods, "_BEGINS_S", 0.01)
    run(scenario())
