"""A stand-in for a bookie or a broker of the launcher: it reads its file, holds its ports, answers over HTTP, and dies
on demand.

Tests of the launcher run with it within milliseconds, and in ways that no real process has: it ignores SIGTERM, or ends
before it is ready. It has a bookie's `--config FILE`; environment variables set its behaviour.
"""

from __future__ import annotations

import json
import os
import signal
import socketserver
import sys
import time
import tomllib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


class Answers(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        ready = "STAND_IN_NEVER_READY" not in os.environ
        status = 200 if ready or self.path != "/ready" else 503
        answer: dict[str, object] = {"ready": ready}
        if self.path == "/status":
            answer = {"environment": dict(os.environ), "settings": SETTINGS, "topics": 5, "bundles": 2}
            if "STAND_IN_SESSION" in os.environ:
                answer["session"] = os.environ["STAND_IN_SESSION"]
        body = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True
    # Looking up the machine's name would take its time.
    server_bind = socketserver.TCPServer.server_bind


SETTINGS = tomllib.loads(Path(sys.argv[sys.argv.index("--config") + 1]).read_text())


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def ends(*_: object) -> None:
    say(f"got SIGTERM at {time.monotonic()}")
    os._exit(0)


def main() -> int:
    settings = SETTINGS
    if "data_folder" in settings:
        Path(settings["data_folder"]).mkdir(exist_ok=True)
    say(f"{settings.get('bookie_id') or settings['broker_id']} begins, as process {os.getpid()}")
    if "STAND_IN_ENDS" in os.environ:
        say("2026-01-31T09:30:00.123Z CRITICAL stand_in it ends before it is ready")
        say("what comes behind matters less")
        return 78
    if "STAND_IN_DEAF" in os.environ:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    else:
        signal.signal(signal.SIGTERM, ends)
    servers = []
    listens_at = settings.get("listen_address") or settings["listen_addresses"][0]
    for address in (listens_at, settings["http_address"]):
        host, _, port = address.rpartition(":")
        try:
            servers.append(Server((host, int(port)), Answers))
        except OSError as error:
            say(f"{address}: {error}")
            return 1
    time.sleep(float(os.environ.get("STAND_IN_SLOW_S", "0")))
    servers[1].serve_forever()
    return 0


if __name__ == "__main__":
    sys.exit(main())
