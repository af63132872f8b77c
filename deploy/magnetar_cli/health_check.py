"""Check whether a bookie, a broker or a standalone is ready, for a container's health check.

    python -m magnetar_cli.health_check [URL]

Exit status 0: it is ready. 1: it is not ready or does not answer, and the reason is printed. The container engine runs
this every few seconds, so it imports as little as possible.

The default URL is that of the process with the same environment on this machine: /ready at MAGNETAR_HTTP_ADDRESS, or at
MAGNETAR_HTTP_PORT, or at port 8080. A bookie is ready when other processes can find it, and a broker when a message has
passed through it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Final

from magnetar_cli.http_request import format_reasons, request_http

__all__ = ["health_check", "ready_url"]

# Above a broker's health_check_timeout_seconds, so that a check that times out can report the reason.
_TIMEOUT_S: Final = 8.0
_PORT: Final = 8080
# A process that listens at all addresses is reached at the loopback.
_ANY_HOST: Final = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]", "": "127.0.0.1"}


def ready_url(environment: Mapping[str, str]) -> str:
    """Return the URL of the process that has these environment variables."""
    address = environment.get("MAGNETAR_HTTP_ADDRESS") or f":{environment.get('MAGNETAR_HTTP_PORT', _PORT)}"
    host, _, port = address.rpartition(":")
    return f"http://{_ANY_HOST.get(host, host)}:{port}/ready"


def health_check(url: str, timeout_s: float = _TIMEOUT_S) -> str:
    """Return why the process is not ready, or an empty string if it is."""
    address, _, path = url.removeprefix("http://").partition("/")
    status, answer = request_http(address, f"/{path}", timeout_s=timeout_s)
    if status is None:
        return f"no answer from {url}"
    return "" if status == 200 else f"{url}: {format_reasons(answer)}"


if __name__ == "__main__":
    problem = health_check(sys.argv[1] if len(sys.argv) > 1 else ready_url(os.environ))
    if problem:
        print(problem)
        sys.exit(1)
