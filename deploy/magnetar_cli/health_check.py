"""Asks a bookie, a broker or a standalone whether it is ready, for whoever watches over its process.

    python -m magnetar_cli.health_check [URL]

Exit status 0: it is; 1: it is not, or does not answer, and why is said. A container's engine asks every few seconds as
long as the container lives, so this imports next to nothing.

Without a URL it is this machine's process with this one's settings: /ready at MAGNETAR_HTTP_ADDRESS, or at
MAGNETAR_HTTP_PORT, or at port 8080. Ready is a bookie that others find, and a broker through which a message went.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Final

from magnetar_cli.http_asking import ask_http, reasons_shown

__all__ = ["health_check", "ready_url"]

# Above a broker's health_check_timeout_seconds: where it looks, that has a bound of its own, and then it says why.
_ANSWER_S: Final = 8.0
_PORT: Final = 8080
# All of a machine's addresses: asked at the loopback.
_ANY_HOST: Final = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]", "": "127.0.0.1"}


def ready_url(environment: Mapping[str, str]) -> str:
    """Where a process that has its settings from there is asked."""
    address = environment.get("MAGNETAR_HTTP_ADDRESS") or f":{environment.get('MAGNETAR_HTTP_PORT', _PORT)}"
    host, _, port = address.rpartition(":")
    return f"http://{_ANY_HOST.get(host, host)}:{port}/ready"


def health_check(url: str, timeout_s: float = _ANSWER_S) -> str:
    """Why it is not ready; empty: it is."""
    address, _, path = url.removeprefix("http://").partition("/")
    status, answer = ask_http(address, f"/{path}", timeout_s=timeout_s)
    if status is None:
        return f"no answer from {url}"
    return "" if status == 200 else f"{url}: {reasons_shown(answer)}"


if __name__ == "__main__":
    problem = health_check(sys.argv[1] if len(sys.argv) > 1 else ready_url(os.environ))
    if problem:
        print(problem)
        sys.exit(1)
