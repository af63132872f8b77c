"""The HTTP requests that a bookie answers.

    GET  /health      200 if the bookie works, else 503: see health.py
    GET  /ready       200 if it is registered, else 503
    GET  /status      its state, in detail
    GET  /metrics     for Prometheus
    POST /read-only   {"read_only": true}: accept no new entries from now on, also after a restart; false: accept them,
                      unless there is another reason not to

A change needs the content type application/json, which a web page in somebody's browser can't send without permission.
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
_UNSUPPORTED_MEDIA_TYPE: Final = 415
_UNAVAILABLE: Final = 503


class BookieHttp:
    def __init__(self, process: BookieProcess, health: Health, disk: DiskUsageMonitor, clock: Clock) -> None:
        self._process = process
        self._health = health
        self._disk = disk
        self._clock = clock
        self._started_at = clock.monotonic()
        self._metrics = Metrics(process)
        # Set when HTTP is served.
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
        healthy, parts = await self._health.check()
        return JSONResponse(parts, 200 if healthy else _UNAVAILABLE)

    async def _get_ready(self, request: Request) -> Response:
        ready, parts = self._health.check_ready()
        return JSONResponse(parts, 200 if ready else _UNAVAILABLE)

    async def _get_status(self, request: Request) -> Response:
        uptime_s = self._clock.monotonic() - self._started_at
        return JSONResponse(build_status(self._process, self.address, uptime_s, await self._disk.measure()))

    async def _get_metrics(self, request: Request) -> Response:
        return Response(self._metrics.format(await self._disk.measure()), media_type=CONTENT_TYPE_LATEST)

    async def _post_read_only(self, request: Request) -> Response:
        content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if content_type != "application/json":
            return JSONResponse({"error": "the content type must be application/json"}, _UNSUPPORTED_MEDIA_TYPE)
        try:
            requested = json.loads(await request.body())
        except (ValueError, RecursionError):
            requested = None
        if (
            not isinstance(requested, dict)
            or list(requested) != ["read_only"]
            or not isinstance(requested["read_only"], bool)
        ):
            return JSONResponse({"error": 'the body must be {"read_only": true} or {"read_only": false}'}, _BAD_REQUEST)
        bookie = self._process.bookie
        try:
            await bookie.store_read_only(requested["read_only"])
        except StorageFailed as error:
            return JSONResponse({"error": str(error)}, _UNAVAILABLE)
        return JSONResponse({"read_only": bookie.read_only, "read_only_because": bookie.read_only_reasons})
