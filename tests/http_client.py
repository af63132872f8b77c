"""Asking an HTTP server of this machine, from a loop that may serve it as well."""

from __future__ import annotations

import asyncio
import http.client
import json
from typing import Any

__all__ = ["ask", "ask_json", "send_request"]

_TIMEOUT_S = 60.0


def send_request(
    address: str, path: str, method: str = "GET", body: bytes | None = None, content_type: str = "application/json"
) -> tuple[int, bytes]:
    """The answer's status and body."""
    host, _, port = address.rpartition(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=_TIMEOUT_S)
    try:
        connection.request(method, path, body, {} if body is None else {"content-type": content_type})
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


async def ask(
    address: str, path: str, method: str = "GET", body: bytes | None = None, content_type: str = "application/json"
) -> tuple[int, bytes]:
    return await asyncio.to_thread(send_request, address, path, method, body, content_type)


async def ask_json(address: str, path: str, method: str = "GET", body: object = None) -> tuple[int, Any]:
    status, answer = await ask(address, path, method, None if body is None else json.dumps(body).encode())
    return status, json.loads(answer)
