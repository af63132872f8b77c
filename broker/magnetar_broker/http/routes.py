"""What a broker answers over HTTP.

GET /                            what this is, and where to look
GET /health                      200 if a message can go through, else 503, with the reasons: see admin/health.py
GET /admin/v2/brokers/health     the same, as Pulsar's tools ask it: 200 and "ok", or 503
GET /ready                       the same: who is sent here can be served
GET /status                      all that it says of itself
GET /metrics                     for Prometheus
"""

from __future__ import annotations

from typing import Final

from prometheus_client import CONTENT_TYPE_LATEST
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from magnetar_broker.broker import Broker
from magnetar_broker.http.metrics import BrokerMetrics
from magnetar_broker.http.status import status_of
from magnetar_wire.process.version import read_version

__all__ = ["BrokerHttp"]

_UNAVAILABLE: Final = 503


class BrokerHttp:
    def __init__(self, broker: Broker, metrics: BrokerMetrics, address: str = "") -> None:
        self._broker = broker
        self._metrics = metrics
        # Known when it is served.
        self.address = address
        self.app = Starlette(
            routes=[
                Route("/", self._get_root),
                Route("/health", self._get_health),
                Route("/admin/v2/brokers/health", self._get_health_as_pulsar),
                Route("/ready", self._get_ready),
                Route("/status", self._get_status),
                Route("/metrics", self._get_metrics),
                Route("/metrics/", self._get_metrics),
            ]
        )

    async def _get_root(self, request: Request) -> Response:
        return JSONResponse(
            {
                "service": "Magnetar",
                "version": read_version(),
                "address": self._broker.advertised_address,
                "pulsar_address": self._broker.advertised.internal_pulsar,
                "see": ["/health", "/ready", "/status", "/metrics"],
            }
        )

    async def _get_health(self, request: Request) -> Response:
        healthy, reasons = await self._broker.health.check()
        return JSONResponse({"healthy": healthy, "reasons": reasons}, 200 if healthy else _UNAVAILABLE)

    async def _get_health_as_pulsar(self, request: Request) -> Response:
        healthy, reasons = await self._broker.health.check()
        return PlainTextResponse("ok" if healthy else "\n".join(reasons), 200 if healthy else _UNAVAILABLE)

    async def _get_ready(self, request: Request) -> Response:
        ready, reasons = await self._broker.health.check()
        return JSONResponse({"ready": ready, "reasons": reasons}, 200 if ready else _UNAVAILABLE)

    async def _get_status(self, request: Request) -> Response:
        return JSONResponse(status_of(self._broker, self.address))

    async def _get_metrics(self, request: Request) -> Response:
        return Response(await self._metrics.text(), media_type=CONTENT_TYPE_LATEST)
