"""Bad requests on the admin paths: a 4xx with a reason, nothing changed, and bounded memory."""

from __future__ import annotations

import asyncio
import gc
import gzip
import json
import tracemalloc
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final

import pytest

from magnetar_broker.admin.catalog_calls import TenantCalls
from magnetar_protos.admin_pb2 import TenantAnswer, TenantRequest
from tests.running import until, within
from tests.unit.broker.http.admin_scene import HttpScene, running_http

TENANT: Final = "/admin/v2/tenants/acme"
JSON: Final = "Content-Type: application/json"
# More than requests that are refused take in passing, and less than one of the large bodies.
MAX_BYTES: Final = 4_000_000


@asynccontextmanager
async def _sentinel() -> AsyncIterator[HttpScene]:
    """A broker with a tenant that no bad request may change."""
    async with running_http() as scene:
        assert (
            await scene.ask("PUT", TENANT, {"adminRoles": ["amy"], "allowedClusters": ["standalone"]})
        ).status == 204
        yield scene
        assert await scene.get("tenants") == ["acme", "public"]
        assert (await scene.get("tenants/acme"))["adminRoles"] == ["amy"]


async def _exchange(scene: HttpScene, data: Sequence[bytes], count: int = 1) -> list[tuple[int, str]]:
    """Send these bytes on a connection, part by part, and return the status and reason of this many answers.

    With `count=0` the client ends the connection, and nothing may be answered.
    """
    host, _, port = scene.address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        for part in data:
            writer.write(part)
            await writer.drain()
        if not count:
            writer.write_eof()
            assert await within(reader.read(), "the end") == b""
        return [await within(_read_answer(reader), "the answer") for _ in range(count)]
    finally:
        writer.close()


async def _read_answer(reader: asyncio.StreamReader) -> tuple[int, str]:
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    size = int(head.partition(b"content-length:")[2].split(b"\r\n")[0])
    return int(head.split(b" ", 2)[1]), json.loads(await reader.readexactly(size)).get("reason", "")


def _head(verb: str, target: str, *headers: str) -> bytes:
    return "\r\n".join([f"{verb} {target} HTTP/1.1", "Host: x", *headers, "", ""]).encode("latin-1")


@pytest.mark.parametrize(
    ("status", "body", "headers"),
    [
        (413, b"x" * 10_000_000, {}),
        (413, b"[" * 10_000_000, {}),
        (400, b"[" * 65_000, {}),
        (400, b'{"adminRoles":' * 4_000, {}),
        (400, b'{"adminRoles": ' + b"[" * 900 + b"]" * 900 + b"}", {}),
        (400, b'{"adminRoles": NaN}', {}),
        (400, b'{"adminRoles": [1e999]}', {}),
        (400, b'{"adminRoles": ' + b"9" * 5_000 + b"}", {}),
        (400, b'{"adminRoles": ["\\ud800"]}', {}),
        (400, b'{"adminRoles": ["x"], "adminRoles": 7}', {}),
        (400, b'{"adminRoles": [null]}', {}),
        (400, b'{"adminRoles": {"a": 1}}', {}),
        (400, '{"adminRoles": ["é"]}'.encode("latin-1"), {}),
        (400, "{}".encode("utf-16"), {}),
        (412, b"", {}),
        (412, b"null", {}),
        (415, gzip.compress(b"{}", mtime=0), {"Content-Encoding": "gzip"}),
        (415, b"{}", {"Content-Type": "text/plain"}),
        (415, b"a=b", {"Content-Type": "application/x-www-form-urlencoded"}),
        (415, b"{}", {"Content-Type": "\xff\x80" * 1000}),
    ],
)
async def test_bad_bodies(status: int, body: bytes, headers: dict[str, str]) -> None:
    """ADM-1: bad bodies change nothing."""
    async with _sentinel() as scene:
        answer = await scene.ask("POST", TENANT, raw=body, headers=headers)
        assert (answer.status, bool(answer.reason)) == (status, True)
        assert len(answer.reason) < 500


async def test_bad_paths_and_queries() -> None:
    async with _sentinel() as scene:
        for verb, target, status in (
            ("GET", "/admin/v2/tenants/%ff%fe", 400),
            ("GET", "/admin/v2/tenants/a%0d%0ab", 412),
            ("PUT", "/admin/v2/tenants/a%0d%0ab", 412),
            ("PUT", "/admin/v2/tenants/a%2Fb", 412),
            ("PUT", "/admin/v2/tenants/..", 412),
            ("PUT", "/admin/v2/tenants/%00", 412),
            ("PUT", "/admin/v2/tenants/" + "x" * 10_000, 412),
            ("GET", "/admin/v2/tenants/acme%2F..%2Fpublic", 412),
            ("GET", "/admin/v2//tenants", 404),
            ("GET", "/admin%2Fv2/tenants", 404),
            ("GET", "/admin/v2" + "/a" * 20, 404),
            ("GET", "/admin/v2" + "/" * 5_000, 404),
            ("GET", "/admin/v2", 404),
            ("GET", "/admin/v3/tenants", 404),
            ("GET", "/nothing", 404),
            ("DELETE", "/health", 405),
            ("DELETE", "/admin/v2/tenants", 405),
            ("BREW", TENANT, 405),
            ("TRACE", TENANT, 405),
            ("DELETE", TENANT + "?force=maybe", 400),
            ("DELETE", TENANT + "?force=%ff", 400),
            ("DELETE", TENANT + "?" + "a=1&" * 1_000, 400),
        ):
            answer = await scene.ask(verb, target, {} if verb == "PUT" else None)
            assert (answer.status, bool(answer.reason)) == (status, True), (verb, target[:80], answer)


async def test_head_and_options() -> None:
    async with _sentinel() as scene:
        head = await scene.ask("HEAD", TENANT)
        assert (head.status, head.body) == (200, None)
        assert int(head.headers["content-length"]) > 0
        options = await scene.ask("OPTIONS", TENANT)
        assert (options.status, options.headers["allow"]) == (200, "DELETE, GET, HEAD, OPTIONS, POST, PUT")


@pytest.mark.parametrize(
    "data",
    [
        [b"\x16\x03\x01\x02\x00\x01\x00"],
        [b"GET\r\n\r\n"],
        [_head("GET", "/admin/v2/tenants/\xff")],
        [_head("GET", "/admin/v2/" + "x" * 20_000)],
        [_head("GET", TENANT, *(f"X-{number}: {'y' * 50}" for number in range(1000)))],
        [_head("POST", TENANT, JSON, "Content-Length: -1"), b"{}"],
        [_head("POST", TENANT, JSON, "Content-Length: 2", "Content-Length: 3"), b"{}"],
        [_head("POST", TENANT, JSON, "Transfer-Encoding: chunked"), b"zz\r\n{}\r\n0\r\n\r\n"],
        [_head("POST", TENANT, JSON, "Transfer-Encoding: gzip, chunked"), b"2\r\n{}\r\n0\r\n\r\n"],
    ],
)
async def test_what_is_not_http(data: list[bytes]) -> None:
    async with _sentinel() as scene:
        ((status, reason),) = await _exchange(scene, data)
        assert (status // 100, bool(reason)) == (4, True)


async def test_bodies_without_an_end() -> None:
    """A body is read up to the limit, and then no more of it is retained."""
    async with _sentinel() as scene:
        chunk = b"1000\r\n" + b" " * 0x1000 + b"\r\n"
        unended = [_head("POST", TENANT, JSON, "Transfer-Encoding: chunked"), *[chunk] * 100]
        ((status, reason),) = await _exchange(scene, unended)
        assert (status, "maximum" in reason) == (413, True)
        # The client ends in the middle of its body.
        for part in ([], [chunk]):
            await _exchange(scene, [_head("POST", TENANT, JSON, "Transfer-Encoding: chunked"), *part], count=0)
        await _exchange(scene, [_head("POST", TENANT, JSON, "Content-Length: 9"), b"{}"], count=0)


async def test_slow_bodies_are_cut_off() -> None:
    async with running_http() as scene:
        host, _, port = scene.address.rpartition(":")
        connections = [await asyncio.open_connection(host, int(port)) for _ in range(20)]
        for _, writer in connections:
            writer.write(_head("PUT", TENANT, JSON, "Content-Length: 2") + b"{")
        # They hold connections, and none of the calls that are limited.
        assert await scene.get("tenants") == ["public"]
        for _, writer in connections:
            writer.close()


async def test_pipelined_requests_are_answered_in_order() -> None:
    async with _sentinel() as scene:
        bad = _head("POST", TENANT, JSON, "Content-Length: 1") + b"{"
        good = _head("GET", "/admin/v2/tenants/none")
        answers = await _exchange(scene, [(bad + good) * 20], count=40)
        assert [status for status, _ in answers] == [400, 404] * 20


async def test_calls_above_the_limit_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    release, waiting = asyncio.Event(), 0
    get_tenant = TenantCalls.tenant

    async def wait_and_get(self: TenantCalls, request: TenantRequest) -> TenantAnswer:
        nonlocal waiting
        waiting += 1
        await release.wait()
        return await get_tenant(self, request)

    monkeypatch.setattr(TenantCalls, "tenant", wait_and_get)
    async with _sentinel() as scene:
        requests = [asyncio.create_task(_exchange(scene, [_head("GET", TENANT)])) for _ in range(90)]
        await until(lambda: waiting == 64 and sum(task.done() for task in requests) == 26, "26 are refused")
        release.set()
        answers = [answer for answers in await asyncio.gather(*requests) for answer in answers]
        assert sorted(status for status, _ in answers) == [200] * 64 + [429] * 26
        assert all(reason for status, reason in answers if status == 429)


async def test_bad_requests_take_little_memory() -> None:
    async with _sentinel() as scene:
        await scene.ask("POST", TENANT, raw=b"x" * 100_000)
        gc.collect()
        tracemalloc.start()
        try:
            for body in (b"x" * 10_000_000, b"[" * 60_000, b'{"a":' * 10_000, b'["\\ud800"]' * 6_000):
                tracemalloc.reset_peak()
                before = tracemalloc.get_traced_memory()[0]
                await asyncio.gather(*(scene.ask("POST", TENANT, raw=body) for _ in range(8)))
                assert tracemalloc.get_traced_memory()[1] - before < MAX_BYTES
        finally:
            tracemalloc.stop()
