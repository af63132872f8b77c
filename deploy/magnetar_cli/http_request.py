"""HTTP requests to bookies and brokers: their status, health and readiness."""

from __future__ import annotations

import http.client
import json
from typing import Any, Final

__all__ = ["HTTP_TIMEOUT_S", "format_reasons", "request_http"]

HTTP_TIMEOUT_S: Final = 2.0
_MAX_ANSWER_BYTES: Final = 16 * 1024 * 1024


def request_http(
    address: str, path: str, method: str = "GET", body: Any = None, timeout_s: float = HTTP_TIMEOUT_S
) -> tuple[int | None, Any]:
    """Return the status and the answer, decoded if it is JSON. The status is None if there was no answer."""
    connection = http.client.HTTPConnection(address, timeout=timeout_s)
    try:
        data = None if body is None else json.dumps(body)
        headers = {} if body is None else {"Content-Type": "application/json"}
        connection.request(method, path, data, headers)
        answer = connection.getresponse()
        text = answer.read(_MAX_ANSWER_BYTES).decode(errors="replace")
    except (OSError, http.client.HTTPException):
        return None, None
    finally:
        connection.close()
    try:
        return answer.status, json.loads(text)
    except ValueError:
        return answer.status, text


def format_reasons(answer: Any) -> str:
    """Return the reasons in a process's answer for not being ready or healthy."""
    if isinstance(answer, dict) and isinstance(answer.get("reasons"), list):
        return "; ".join(map(str, answer["reasons"]))
    return f"it is not ready: {str(answer).strip()[:200]}"
