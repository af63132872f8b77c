"""The probe of an address: what counts as a refusal (OWN-2)."""

from __future__ import annotations

import asyncio
import socket

import pytest

from magnetar_wire.grpc_transport.connection_probe import refuses_connections

_LATE_S = 0.2


def _probe(address: str, timeout_s: float = 60.0) -> bool:
    return asyncio.run(refuses_connections(address, timeout_s))


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]", "localhost"])
def test_a_port_where_no_process_listens_refuses(host: str) -> None:
    assert _probe(f"{host}:{_free_port()}")


def test_a_process_that_listens_and_never_accepts_does_not_refuse() -> None:
    """A hanging process does that: a timeout proves nothing."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as server:
        address = server.getsockname()
        waiting = []
        for _ in range(4):
            one = socket.socket()
            one.setblocking(False)
            one.connect_ex(address)
            waiting.append(one)
        try:
            assert not _probe(f"127.0.0.1:{address[1]}", _LATE_S)
        finally:
            for one in waiting:
                one.close()


@pytest.mark.parametrize("hosts", [("127.0.0.1", "127.0.0.2"), ("127.0.0.2", "127.0.0.1")])
def test_one_accepting_address_of_a_name_is_enough(hosts: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """Any of the addresses counts."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        found = [(socket.AF_INET, socket.SOCK_STREAM, 0, "", (host, port)) for host in hosts]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
        assert not _probe(f"two.addresses:{port}")


@pytest.mark.parametrize("address", ["no.such.host.invalid:1", "127.0.0.1", "127.0.0.1:port", "", "127.0.0.1:99999999"])
def test_an_address_that_can_not_be_connected_to_does_not_refuse(address: str) -> None:
    assert not _probe(address)


def test_an_unreachable_host_does_not_refuse(monkeypatch: pytest.MonkeyPatch) -> None:
    async def unreachable(*_: object) -> None:
        raise OSError(113, "No route to host")

    async def reset(*_: object) -> None:
        raise ConnectionResetError

    for fails in (unreachable, reset):
        with monkeypatch.context() as patched:
            patched.setattr(asyncio.BaseEventLoop, "sock_connect", fails, raising=False)
            patched.setattr("asyncio.selector_events.BaseSelectorEventLoop.sock_connect", fails)
            assert not _probe("127.0.0.1:1")
