"""A broker whose admin calls are made over HTTP, as Pulsar's tools do."""

from __future__ import annotations

import asyncio
import http.client
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

from magnetar.admin import AsyncAdmin
from magnetar_broker.http.metrics import BrokerMetrics
from magnetar_broker.http.routes import BrokerHttp
from magnetar_wire.process.http_server import HttpSettings, serve_http
from tests.unit.broker.broker_scene import BrokerScene, running_broker

__all__ = ["Answer", "HttpScene", "running_http", "running_over", "serving_http"]


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    # The decoded JSON body; bytes if it is not JSON; None: there is none.
    body: Any
    # Names are in lower case.
    headers: dict[str, str]

    @property
    def reason(self) -> str:
        return str(self.body["reason"])


@dataclass(frozen=True, slots=True)
class HttpScene:
    broker: BrokerScene
    address: str
    # The administration client over HTTP; `broker.admin` is that over gRPC.
    admin: AsyncAdmin

    async def ask(
        self,
        verb: str,
        path: str,
        body: Any = None,
        *,
        raw: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """Send a request. `path` is below /admin/v2 unless it begins with a slash."""
        target = path if path.startswith("/") else f"/admin/v2/{path}"
        content = raw if raw is not None or body is None else json.dumps(body).encode()
        return await asyncio.to_thread(_send, self.address, verb, target, content, headers or {})

    async def get(self, path: str) -> Any:
        """Return the body of a GET that must succeed."""
        answer = await self.ask("GET", path)
        assert answer.status == 200, answer
        return answer.body


def _send(address: str, verb: str, target: str, content: bytes | None, headers: Mapping[str, str]) -> Answer:
    connection = http.client.HTTPConnection(address, timeout=30)
    try:
        content_type = {"Content-Type": "application/json"} if content is not None else {}
        connection.request(verb, target, content, {**content_type, **headers})
        response = connection.getresponse()
        body: Any = response.read() or None
        received = {name.lower(): ", ".join(response.headers.get_all(name, ())) for name in response.headers}
        if body is not None and received.get("content-type", "").startswith("application/json"):
            body = json.loads(body)
        return Answer(response.status, body, received)
    finally:
        connection.close()


@asynccontextmanager
async def running_over(protocol: str, **settings: Any) -> AsyncIterator[BrokerScene]:
    """Run a broker with these settings, whose `admin` reaches it over `protocol`: grpc or http."""
    if protocol == "grpc":
        async with running_broker(**settings) as scene:
            yield scene
        return
    async with running_http(**settings) as over_http:
        scene = over_http.broker
        over_grpc, scene.admin = scene.admin, over_http.admin
        try:
            yield scene
        finally:
            scene.admin = over_grpc


@asynccontextmanager
async def running_http(**settings: Any) -> AsyncIterator[HttpScene]:
    """Run a broker with these settings, and its HTTP server."""
    scene = BrokerScene(**settings)
    metrics = BrokerMetrics(scene.broker, scene.broker.settings, "standalone")
    server = await serve_http(BrokerHttp(scene.broker, metrics).app, "127.0.0.1:0")
    # Brokers know each other by these addresses.
    scene.broker.http_address = server.address
    try:
        await scene.start()
        try:
            async with AsyncAdmin(f"http://{server.address}") as admin:
                yield HttpScene(scene, server.address, admin)
        finally:
            with suppress(TimeoutError):
                await scene.close()
    finally:
        await server.close()


@asynccontextmanager
async def serving_http(scene: BrokerScene, settings: HttpSettings | None = None) -> AsyncIterator[HttpScene]:
    """Serve the HTTP of a broker that is running already."""
    metrics = BrokerMetrics(scene.broker, scene.broker.settings, "standalone")
    server = await serve_http(BrokerHttp(scene.broker, metrics).app, "127.0.0.1:0", settings)
    try:
        async with AsyncAdmin(f"http://{server.address}") as admin:
            yield HttpScene(scene, server.address, admin)
    finally:
        await server.close()
