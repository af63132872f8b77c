"""The HTTP routes of a broker.

GET /                            the name of the service, its version and addresses, and the other routes
GET /health                      the health check (admin/health.py): 200, or 503 with the reasons
GET /ready                       the same as /health
GET /status                      a description of the broker
GET /metrics                     the metrics, for Prometheus
/admin/v2/…, /lookup/v2/…        the admin calls (admin_api.py)
GET /openapi.json, /docs         a description of these, for programs and for people (openapi.py)
"""

from __future__ import annotations

import os
from typing import Any, Final

from prometheus_client import CONTENT_TYPE_LATEST
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from magnetar_broker.admin.admin_service import AdminService
from magnetar_broker.broker import Broker
from magnetar_broker.errors import TopicUnloaded
from magnetar_broker.http.admin_api import AdminApi, refuse
from magnetar_broker.http.answer_budget import AnswerBudget
from magnetar_broker.http.metrics import BrokerMetrics
from magnetar_broker.http.openapi import ApiDescription
from magnetar_metadata.store import SessionState
from magnetar_wire.process.version import read_version

__all__ = ["BrokerHttp", "describe_broker"]

_UNAVAILABLE: Final = 503
_EXCESS: Final = 429
_ADMIN_PATHS: Final = (b"/admin/v2/", b"/admin/v3/", b"/lookup/v2/", b"/topics/")


class BrokerHttp:
    def __init__(self, broker: Broker, metrics: BrokerMetrics, address: str = "") -> None:
        self._broker = broker
        self._metrics = metrics
        # Set when the routes are served.
        self.address = address
        settings = broker.settings
        self._budget = AnswerBudget(settings.http_max_pending_answer_bytes)
        self._admin = AdminApi(self._find_admin_service, self._budget, settings.http_max_uncompressed_message_bytes)
        self._description = ApiDescription()
        self._others = Starlette(
            routes=[
                Route("/", self._get_root),
                Route("/health", self._get_health),
                Route("/ready", self._get_ready),
                Route("/status", self._get_status),
                Route("/metrics", self._get_metrics),
                Route("/metrics/", self._get_metrics),
                Route("/openapi.json", self._get_description),
                Route("/docs", self._get_description),
            ],
            exception_handlers={HTTPException: _refuse_request},
        )

    async def app(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request, as an ASGI application."""
        is_admin = scope["raw_path"].startswith(_ADMIN_PATHS)
        await (self._admin if is_admin else self._others)(scope, receive, send)

    def _find_admin_service(self) -> AdminService | None:
        try:
            return self._broker.server.get_session().admin
        except TopicUnloaded:
            return None

    async def _get_root(self, request: Request) -> Response:
        return JSONResponse(
            {
                "service": "Magnetar",
                "version": read_version(),
                "address": self._broker.advertised_address,
                "pulsar_address": self._broker.advertised.internal_pulsar,
                "see": ["/health", "/ready", "/status", "/metrics", "/openapi.json", "/docs"],
            }
        )

    async def _get_health(self, request: Request) -> Response:
        healthy, reasons = await self._broker.health.check()
        return JSONResponse({"healthy": healthy, "reasons": reasons}, 200 if healthy else _UNAVAILABLE)

    async def _get_ready(self, request: Request) -> Response:
        ready, reasons = await self._broker.health.check()
        return JSONResponse({"ready": ready, "reasons": reasons}, 200 if ready else _UNAVAILABLE)

    async def _get_status(self, request: Request) -> Response:
        return JSONResponse(describe_broker(self._broker, self.address))

    async def _get_metrics(self, request: Request) -> ASGIApp:
        return self._budget.limit(
            Response(await self._metrics.format(), media_type=CONTENT_TYPE_LATEST), _refuse_excess
        )

    async def _get_description(self, request: Request) -> ASGIApp:
        return self._budget.limit(await self._description.serve(request), _refuse_excess)


def _refuse_excess(reason: str) -> Response:
    return refuse(_EXCESS, reason)


async def _refuse_request(request: Request, error: Exception) -> Response:
    """Answer a path or method that does not exist."""
    assert isinstance(error, HTTPException)
    answer = refuse(error.status_code, f"{request.method} {request.url.path}: {error.detail}"[:300])
    answer.headers.update(error.headers or {})
    return answer


def describe_broker(broker: Broker, http_address: str) -> dict[str, Any]:
    """Return the fields of `GET /status`."""
    session = broker.session
    state = SessionState.LOST if session is None else session.store.session.state
    topics = [] if session is None else session.topics.loaded()
    return {
        "broker_id": broker.broker_id,
        "version": read_version(),
        "pid": os.getpid(),
        "uptime_s": round(broker.uptime_s, 3),
        "listen_addresses": broker.addresses,
        "advertised_listeners": dict(broker.advertised.listeners),
        "pulsar_listen_addresses": broker.pulsar_addresses,
        "pulsar_advertised_listeners": dict(broker.advertised.pulsar),
        "http_address": http_address,
        "serves": session is not None,
        # The reason why it does not serve yet; empty: it serves.
        "waits_for": broker.waits_for,
        "session": state.value,
        # Owned bundles, and loaded topics.
        "bundles": 0 if session is None else len(session.ownership.list_owned()),
        "topics": len(topics),
        "producers": sum(len(topic.producers.connected()) for topic in topics),
        # Streams of clients over gRPC, and connections of Pulsar's protocol.
        "streams": 0 if session is None else len(session.client_streams),
        "connections": len(broker.pulsar_connections),
    }
