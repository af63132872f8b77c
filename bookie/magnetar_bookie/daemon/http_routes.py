"""What a bookie answers over HTTP.

    GET  /health      200 if it truly works, else 503: see health.py
    GET  /ready       200 if it is registered, else 503
    GET  /status      all that it says of itself
    GET  /metrics     for Prometheus
    POST /read-only   {"read_only": true}: takes no new entries from now on, after a restart either; false: unless
                      there is another reason not to

A change asks for the content type application/json: a page in somebody's browser can't send that without asking first.
"""

from __future__ import annotations

import json
from typing import Final

from prometheus_client import CONTENT_TYPE_LATEST
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from magnetar_bookie.daemon.disk_usage import DiskUsageMonitor
from magnetar_bookie.daemon.health import Health
from magnetar_bookie.daemon.metrics import Metrics
from magnetar_bookie.daemon.status import build_status
from magnetar_bookie.server.bookie_process import BookieProcess
from magnetar_bookie.storage.interface import StorageFailed
from magnetar_wire.clock import Clock

__all__ = ["BookieHttp"]

_BAD_REQUEST: Final = 400
_NO_JSON: Final = 415
_UNAVAILABLE: Final = 503


class BookieHttp:
    def __init__(self, process: BookieProcess, health: Health, disk: DiskUsageMonitor, clock: Clock) -> None:
        self._process = process
        self._health = health
        self._disk = disk
        self._clock = clock
        self._began = clock.monotonic()
        self._metrics = Metrics(process)
        # Known when it is served.
        self.address = ""
        self.app = Starlette(
            routes=[
                Route("/health", self._get_health),
                Route("/ready", self._get_ready),
                Route("/status", self._get_status),
                Route("/metrics", self._get_metrics),
                Route("/read-only", self._post_read_only, methods=["POST"]),
            ]
        )

    async def _get_health(self, request: Request) -> Response:
        healthy, parts = await self._health.look()
        return JSONResponse(parts, 200 if healthy else _UNAVAILABLE)

    async def _get_ready(self, request: Request) -> Response:
        ready, parts = self._health.ready()
        return JSONResponse(parts, 200 if ready else _UNAVAILABLE)

    async def _get_status(self, request: Request) -> Response:
        uptime_s = self._clock.monotonic() - self._began
        return JSONResponse(build_status(self._process, self.address, uptime_s, await self._disk.look()))

    async def _get_metrics(self, request: Request) -> Response:
        return Response(self._metrics.text(await self._disk.look()), media_type=CONTENT_TYPE_LATEST)

    async def _post_read_only(self, request: Request) -> Response:
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            return JSONResponse({"error": "the content type must be application/json"}, _NO_JSON)
        try:
            asked = json.loads(await request.body())
        except (ValueError, RecursionError):
            asked = None
        if not isinstance(asked, dict) or list(asked) != ["read_only"] or not isinstance(asked["read_only"], bool):
            return JSONResponse({"error": 'the body must be {"read_only": true} or {"read_only": false}'}, _BAD_REQUEST)
        bookie = self._process.bookie
        try:
            await bookie.keep_read_only(asked["read_only"])
        except StorageFailed as error:
            return JSONResponse({"error": str(error)}, _UNAVAILABLE)
        return JSONResponse({"read_only": bookie.read_only, "read_only_because": bookie.read_only_because})
