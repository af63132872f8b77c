"""Administration over HTTP, with servers that break off, lie, are slow, or send without end."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import ssl
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from magnetar import exceptions
from magnetar.admin import Admin, AsyncAdmin, Health, TenantSettings
from magnetar.schema import StringSchema
from tests.unit.client.http_servers import HttpServer, Reply, http_answer, running_server

OK = http_answer(200, ["public"])
DONE = http_answer(204)
SILENT_S = 0.5


async def never(writer: asyncio.StreamWriter) -> None:
    await asyncio.Event().wait()


async def drip(writer: asyncio.StreamWriter) -> None:
    """Send a header that has no end, a byte at a time, so that no single read takes long."""
    writer.write(b"HTTP/1.1 200 OK\r\nX: ")
    while True:
        writer.write(b"x")
        await writer.drain()
        await asyncio.sleep(0.02)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def admin_of(*servers: HttpServer | str, timeout_s: float = 10.0, scheme: str = "http", **options: Any) -> AsyncAdmin:
    addresses = [server if isinstance(server, str) else server.address for server in servers]
    return AsyncAdmin(f"{scheme}://{','.join(addresses)}", timeout_s, **options)


# The request was sent, so it may have been carried out.
LOST: dict[str, Reply] = {
    "closed": b"",
    "no status line": b"\0\0\x12\x04\0\0\0\0\0",
    "half a header": b"HTTP/1.1 200 OK\r\nContent-Le",
    "half a body": http_answer(200, ["public"]).replace(b"Length: 10", b"Length: 99"),
    "half a chunk": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nff\r\n[",
    "no chunk": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    "too many headers": b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 1000 + b"\r\n",
    "a long line": b"HTTP/1.1 200 OK\r\nA: " + b"b" * 100_000 + b"\r\n\r\n",
    "a gateway's 502": http_answer(502, {"reason": "bad gateway"}),
    "a gateway's 503": http_answer(503, {"reason": "no upstream"}),
    "a redirect to nowhere": http_answer(307),
    "a redirect to a page": http_answer(307, None, "Location: http://127.0.0.1:1/login"),
    "a redirect to a file": http_answer(307, None, "Location: file:///etc/passwd"),
    "a redirect to no port": http_answer(307, None, "Location: http://a:99999999/admin/v2/tenants"),
}


@pytest.mark.parametrize("reply", LOST.values(), ids=LOST)
async def test_a_lost_answer_is_repeated_if_that_does_no_harm_and_unknown_otherwise(reply: Reply) -> None:
    """ADM-1: over HTTP as over gRPC."""
    async with running_server(reply, OK) as server, admin_of(server) as admin:
        assert await admin.tenants.list() == ["public"]
        assert len(server.requests) == 2
    async with running_server(reply, DONE) as server, admin_of(server) as admin:
        with pytest.raises(exceptions.ConnectError, match=r"whether admin\.create_tenant was done is not known"):
            await admin.tenants.create("acme")
        assert server.requests == ["PUT /admin/v2/tenants/acme"]


@pytest.mark.parametrize("body", [b"{", b"7", b'["a", 7]', b"\xff", b"[" * 100_000, b'["\\ud800"]'])
async def test_an_answer_that_does_not_fit_is_an_error(body: bytes) -> None:
    reply = b"HTTP/1.1 200 OK\r\n\r\n" + body
    async with running_server(reply) as server, admin_of(server, timeout_s=0.3) as admin:
        with pytest.raises(exceptions.ConnectError, match="can't be read"):
            await admin.tenants.list()


@pytest.mark.parametrize("head", [b"", b"Content-Length: 99999999999\r\n", b"Transfer-Encoding: chunked\r\n"])
async def test_a_huge_answer_is_read_up_to_the_limit(head: bytes) -> None:
    sent = 0

    async def flood(writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        writer.write(b"HTTP/1.1 200 OK\r\n" + head + b"\r\n" + (b"-1\r\n" if b"chunked" in head else b""))
        while True:
            writer.write(b" " * 1_048_576)
            await writer.drain()
            sent += 1

    async with running_server(flood) as server, admin_of(server) as admin:
        with pytest.raises(exceptions.BrokerFailed, match="more than 64 MiB"):
            await admin.tenants.list()
        assert len(server.requests) == 1
    assert 60 < sent < 90


@pytest.mark.parametrize("reply", [never, drip])
async def test_a_slow_server_is_left_at_the_timeout(reply: Reply) -> None:
    """The time of the whole answer counts: each byte may come in time."""
    async with running_server(reply) as server, admin_of(server, timeout_s=SILENT_S) as admin:
        began = asyncio.get_running_loop().time()
        with pytest.raises(exceptions.ConnectError, match="not known"):
            await admin.tenants.create("acme")
        assert SILENT_S <= asyncio.get_running_loop().time() - began < 10 * SILENT_S


async def test_a_broker_that_did_nothing_is_called_again() -> None:
    """ADM-1."""
    not_ready = http_answer(503, {"reason": "no session"}, "X-Magnetar-Error: SERVICE_NOT_READY")
    too_many = http_answer(429, {"reason": "too many"})
    async with running_server(not_ready, too_many, DONE) as server, admin_of(server) as admin:
        await admin.tenants.create("acme")
        assert len(server.requests) == 3


async def test_the_next_address_is_called_if_one_refuses_connections() -> None:
    """ADM-1."""
    async with running_server(DONE) as server, admin_of(f"127.0.0.1:{free_port()}", server) as admin:
        await admin.tenants.create("acme")
        assert server.requests == ["PUT /admin/v2/tenants/acme"]


async def test_redirects_are_followed_to_the_owner() -> None:
    """Pulsar's brokers redirect calls."""
    async with running_server(http_answer(200, {"adminRoles": ["amy"], "allowedClusters": ["c"]})) as owner:
        location = f"Location: http://{owner.address}/admin/v2/tenants/acme?authoritative=true"
        async with running_server(http_answer(307, None, location)) as server, admin_of(server) as admin:
            assert await admin.tenants.get("acme") == TenantSettings(["amy"], ["c"])
        assert owner.requests == ["GET /admin/v2/tenants/acme?authoritative=true"]
    # The owner is no more: nothing was done, and the redirecting broker may know the next one.
    async with running_server(http_answer(307, None, location), DONE) as server, admin_of(server) as admin:
        await admin.tenants.create("acme")
        assert len(server.requests) == 2


async def test_redirects_in_a_circle_end() -> None:
    server = HttpServer([])
    async with server.running():
        server.replies = [http_answer(307, None, f"Location: http://{server.address}/admin/v2/tenants/acme")] * 2
        async with admin_of(server, timeout_s=0.05) as admin:
            with pytest.raises(exceptions.ConnectError, match="do not agree on the owner"):
                await admin.tenants.create("acme")
        assert len(server.requests) % 6 == 0


# Answers of Pulsar's brokers, which don't name our codes.
ANSWERS: list[tuple[int, str, Callable[[AsyncAdmin], Any], type[exceptions.MagnetarException]]] = [
    (400, "Unrecognized field", lambda admin: admin.tenants.create("t"), exceptions.InvalidArgument),
    (401, "Authentication required", lambda admin: admin.tenants.create("t"), exceptions.AuthenticationError),
    (403, "Only super-users may do that", lambda admin: admin.tenants.create("t"), exceptions.AuthorizationError),
    (404, "Tenant does not exist", lambda admin: admin.tenants.get("t"), exceptions.NotFound),
    (405, "Method Not Allowed", lambda admin: admin.tenants.get("t"), exceptions.OperationNotSupported),
    (409, "Tenant already exist", lambda admin: admin.tenants.create("t"), exceptions.AlreadyExists),
    (
        409,
        "The tenant still has active namespaces",
        lambda admin: admin.tenants.delete("t"),
        exceptions.NotAllowedError,
    ),
    (412, "Tenant name is not valid", lambda admin: admin.tenants.create("t"), exceptions.InvalidArgument),
    (
        412,
        "Clusters can not be empty",
        lambda admin: admin.tenants.update("t", TenantSettings()),
        exceptions.NotAllowedError,
    ),
    (409, "Concurrent modification", lambda admin: admin.tenants.delete("t"), exceptions.NotAllowedError),
    (500, "null", lambda admin: admin.tenants.create("t"), exceptions.BrokerFailed),
]


@pytest.mark.parametrize(("status", "reason", "ask", "kind"), ANSWERS)
async def test_statuses_of_pulsars_brokers_become_our_errors(
    status: int, reason: str, ask: Callable[[AsyncAdmin], Any], kind: type[exceptions.MagnetarException]
) -> None:
    """ADM-1: the Python admin works on Pulsar's brokers."""
    async with running_server(http_answer(status, {"reason": reason})) as server, admin_of(server) as admin:
        with pytest.raises(kind, match=reason) as raised:
            await ask(admin)
        assert type(raised.value) is kind
        assert len(server.requests) == 1


async def test_a_tenant_without_clusters_is_allowed_all_of_them_at_pulsars_brokers() -> None:
    refusal = http_answer(412, {"reason": "TenantInfo is null"})
    async with running_server(refusal, http_answer(200, ["east", "west"]), DONE) as server, admin_of(server) as admin:
        await admin.tenants.create("acme")
        paths = ["PUT /admin/v2/tenants/acme", "GET /admin/v2/clusters", "PUT /admin/v2/tenants/acme"]
        assert server.requests == paths
        assert json.loads(server.bodies[-1]) == {"adminRoles": [], "allowedClusters": ["east", "west"]}


async def test_a_broker_that_is_not_healthy_is_described() -> None:
    refusal = http_answer(503, {"reason": "no bookie answers"}, "X-Magnetar-Error: SERVICE_NOT_READY")
    async with running_server(refusal) as server, admin_of(server) as admin:
        assert await admin.brokers.health() == Health(False, ["no bookie answers"])
        assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("reason", "shown"),
    [
        ("\n --- An error ---\n\nMessage: no cursor\n\nStacktrace:\n\nat a", "--- An error --- Message: no cursor"),
        ("half of a pair: \ud800", '{"reason": "half of a pair: \\ud800"}'),
        ("", "(no reason)"),
        ("x" * 5000, "x" * 1000),
    ],
)
async def test_reasons_are_shown_in_one_line(reason: str, shown: str) -> None:
    async with running_server(http_answer(500, {"reason": reason})) as server, admin_of(server) as admin:
        with pytest.raises(exceptions.BrokerFailed) as raised:
            await admin.tenants.create("t")
        assert str(raised.value) == shown


async def test_the_reason_in_an_error_page_of_pulsar_s_http_server_is_shown() -> None:
    page = (
        b"HTTP/1.1 409 Incompatible\r\nContent-Type: text/html\r\n\r\n<html>\n<head>\n<title>Error 409 Incompatible "
        b"schema: reader&apos;s type &lt;a&gt;\nis int</title>\n</head><body><h2>HTTP ERROR 409 x</h2></body></html>"
    )
    async with running_server(page) as server, admin_of(server) as admin:
        with pytest.raises(exceptions.IncompatibleSchema) as raised:
            await admin.schemas.upload("t", StringSchema())
        assert str(raised.value) == "Incompatible schema: reader's type <a> is int"


async def test_the_header_names_the_error() -> None:
    reply = http_answer(412, {"reason": "in use"}, "X-Magnetar-Error: CONSUMER_BUSY")
    async with running_server(reply) as server, admin_of(server) as admin:
        with pytest.raises(exceptions.ConsumerBusy, match=r"^in use$"):
            await admin.tenants.delete("acme")


async def test_a_server_that_is_no_broker_is_named() -> None:
    page = b"HTTP/1.1 404 Not Found\r\nContent-Type: text/html\r\n\r\n<html>nothing here</html>"
    async with running_server(page) as server, admin_of(server) as admin:
        with pytest.raises(exceptions.OperationNotSupported, match=f"{server.address} has no path /admin/v2/tenants"):
            await admin.tenants.list()


async def test_a_call_that_pulsars_api_does_not_have_names_the_way_out() -> None:
    async with running_server(OK) as server, admin_of(server) as admin:
        with pytest.raises(exceptions.OperationNotSupported, match="use a magnetar:// service URL"):
            await admin.reading.find_position("orders", 1)
        assert server.requests == []


@pytest.mark.parametrize("name", ["", ".", ".."])
async def test_a_name_that_is_no_part_of_a_path_is_refused_before_it_is_sent(name: str) -> None:
    async with running_server(DONE) as server, admin_of(server) as admin:
        with pytest.raises(exceptions.InvalidArgument, match="path"):
            await admin.tenants.delete(name)
        assert server.requests == []


async def test_warnings_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    reply = http_answer(204, None, 'Warning: 299 magnetar "too few bookies"', "Warning: of no known form")
    async with running_server(reply) as server, admin_of(server) as admin:
        await admin.tenants.create("acme")
    assert [record.message.partition(": ")[2] for record in caplog.records] == ["too few bookies", "of no known form"]


async def test_a_closed_client_ends_its_calls() -> None:
    async with running_server(never) as server:
        admin = admin_of(server)
        call = asyncio.create_task(admin.tenants.create("acme"))
        await server.arrived.wait()
        await admin.close()
        with pytest.raises(exceptions.ConnectError, match="not known"):
            await call


async def test_a_cancelled_call_leaves_no_thread() -> None:
    async with running_server(never) as server, admin_of(server) as admin:
        call = asyncio.create_task(admin.tenants.list())
        await server.arrived.wait()
        call.cancel()
        await asyncio.wait([call])
        for thread in threading.enumerate():
            if thread.name == "magnetar http":
                await asyncio.to_thread(thread.join, 10)
                assert not thread.is_alive()


async def test_calls_beyond_the_limit_wait() -> None:
    """A thread each, but not a thousand of them."""
    running: set[asyncio.StreamWriter] = set()
    most = 0
    go_on = asyncio.Event()

    async def count(writer: asyncio.StreamWriter) -> None:
        nonlocal most
        running.add(writer)
        most = max(most, len(running))
        if len(running) == 32:
            go_on.set()
        await go_on.wait()
        running.discard(writer)
        writer.write(OK)

    async with running_server(count) as server, admin_of(server) as admin:
        answers = await asyncio.gather(*(admin.tenants.list() for _ in range(70)))
        assert answers == [["public"]] * 70
    assert most == 32


async def test_https_trusts_only_the_given_authority(tmp_path: Path) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
         "-keyout", key, "-out", certificate, "-subj", "/CN=x", "-addext", "subjectAltName=IP:127.0.0.1"],
        check=True, capture_output=True,
    )  # fmt: skip
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate, key)
    async with running_server(OK, tls=tls) as server:
        async with admin_of(server, scheme="https", tls_trust_certs_file_path=str(certificate)) as admin:
            assert await admin.tenants.list() == ["public"]
        async with admin_of(server, scheme="https", timeout_s=0.2) as admin:
            with pytest.raises(exceptions.AuthenticationError, match=r"certificate of .* is not valid: self.signed"):
                await admin.tenants.create("acme")
    with pytest.raises(exceptions.InvalidConfiguration, match=r"missing\.pem"):
        AsyncAdmin("https://localhost", tls_trust_certs_file_path="missing.pem")


@pytest.mark.parametrize(
    "url", ["http://", "http://a:0", "http://a,:1", "http://a/admin/v2", "https://u@a", "HTTP://a"]
)
def test_wrong_urls_are_refused(url: str) -> None:
    with pytest.raises(exceptions.InvalidUrl):
        AsyncAdmin(url)


def test_a_forked_process_goes_on_while_a_call_of_its_parent_is_in_flight() -> None:
    """The parent's call gets its answer, or an error: the outcome is unknown. Both processes can go on."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        admin = Admin(f"http://127.0.0.1:{server.getsockname()[1]}", 20.0)
        held: list[socket.socket] = []
        arrived = threading.Event()

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                if connection.recv(65_536).startswith(b"PUT"):
                    held.append(connection)
                    arrived.set()
                else:
                    connection.sendall(OK)
                    connection.close()

        threading.Thread(target=serve, daemon=True).start()
        outcome: list[object] = []

        def create() -> None:
            try:
                admin.tenants.create("acme")
                outcome.append(None)
            except exceptions.MagnetarException as error:
                outcome.append(str(error))

        creating = threading.Thread(target=create)
        creating.start()
        assert arrived.wait(10)
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            code = 1
            try:
                os.write(writer, json.dumps(admin.tenants.list()).encode())
                code = 0
            finally:
                os._exit(code)
        assert os.waitpid(child, 0)[1] == 0
        assert json.loads(os.read(reader, 100)) == ["public"]
        os.close(reader)
        os.close(writer)
        held[0].sendall(DONE)
        held[0].close()
        creating.join(10)
        assert admin.tenants.list() == ["public"]
        assert outcome == [None] or "not known" in str(outcome[0])
        admin.close()
        server.shutdown(socket.SHUT_RDWR)
