"""What a bookie or a broker says over HTTP."""

from __future__ import annotations

import http.client
import json
from typing import Any, Final

__all__ = ["ANSWER_S", "ask_http", "reasons_shown"]

ANSWER_S: Final = 2.0
_MAX_ANSWER_BYTES: Final = 16 * 1024 * 1024


def ask_http(
    address: str, path: str, method: str = "GET", body: Any = None, timeout_s: float = ANSWER_S
) -> tuple[int | None, Any]:
    """The status and what was answered, as JSON if it is that, else as text; None: there was no answer."""
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


def reasons_shown(answer: Any) -> str:
    """Why it is not ready or healthy, as it said."""
    if isinstance(answer, dict) and isinstance(answer.get("reasons"), list):
        return "; ".join(map(str, answer["reasons"]))
    return f"it is not ready: {str(answer).strip()[:200]}"
