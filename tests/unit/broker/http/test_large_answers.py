"""How much memory answers take, however slowly clients read them."""

from __future__ import annotations

import socket

from magnetar import CompressionType
from tests.unit.broker.http.admin_scene import HttpScene, running_http

_MIB = 1 << 20
_MESSAGE = "/admin/v2/persistent/public/default/t/examinemessage"


async def _publish_zeros(scene: HttpScene, size: int) -> None:
    """Publish a message that is a few hundred bytes when it is stored."""
    async with scene.broker.client() as client:
        producer = await client.create_producer("t", compression_type=CompressionType.ZSTD)
        await producer.send(bytes(size))


async def test_a_message_that_is_too_large_uncompressed_is_refused() -> None:
    """WIRE-2: a small stored message can't take much memory."""
    async with running_http(http_max_uncompressed_message_bytes=_MIB) as scene:
        await _publish_zeros(scene, _MIB + 1)
        answer = await scene.ask("GET", _MESSAGE)
        assert (answer.status, answer.headers["x-magnetar-error"]) == (413, "MESSAGE_TOO_BIG")
        assert all(part in answer.reason for part in ("1,048,577", "1,048,576", "gRPC")), answer
        (message,) = await scene.broker.admin.topics.examine_messages("t")
        assert message.payload == bytes(_MIB + 1)
        await _publish_zeros(scene, _MIB)
        assert (await scene.ask("GET", _MESSAGE)).body == bytes(_MIB)


async def test_slow_readers_share_a_limited_amount_of_memory() -> None:
    """WIRE-2: further large answers are refused until those are sent; small ones and changes are not."""
    async with running_http(http_max_pending_answer_bytes=13 * _MIB) as scene:
        await _publish_zeros(scene, 13 * _MIB)
        host, _, port = scene.address.rpartition(":")
        with socket.create_connection((host, int(port))) as slow:
            slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            slow.sendall(f"GET {_MESSAGE} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            while (await scene.ask("GET", _MESSAGE)).status == 200:
                pass  # the slow one was not served yet
            for path in (_MESSAGE, "/openapi.json"):
                answer = await scene.ask("GET", path)
                assert (answer.status, answer.headers["x-magnetar-error"]) == (429, "TOO_MANY_REQUESTS"), path
                assert "http_max_pending_answer_bytes" in answer.reason
            assert (await scene.ask("PUT", "persistent/public/default/other")).status == 204
            assert len(await scene.get("persistent/public/default")) == 2
        while (answer := await scene.ask("GET", _MESSAGE)).status == 429:
            pass  # the end of its connection was not noticed yet
        assert answer.body == bytes(13 * _MIB)
        assert (await scene.ask("GET", "/openapi.json")).status == 200
