"""How requests on Pulsar's REST paths become admin calls, and their responses answers."""

from __future__ import annotations

import asyncio

import pytest

from magnetar_broker.topics.topics import Topics
from magnetar_wire.process.settings import HttpSettings
from magnetar_wire.topic_name import TopicName
from tests.unit.broker.broker_scene import running_broker
from tests.unit.broker.http.admin_scene import running_http, serving_http


async def test_a_call_is_made_by_path_query_and_body() -> None:
    """The HTTP half of the admin API."""
    async with running_http() as scene:
        settings = {"adminRoles": ["amy"], "allowedClusters": ["standalone"]}
        assert (await scene.ask("PUT", "tenants/acme", settings)).status == 204
        assert await scene.get("tenants/acme") == settings
        assert (await scene.ask("PUT", "tenants/acme", settings)).status == 409
        assert (await scene.ask("DELETE", "tenants/acme?force=false")).status == 204
        assert (await scene.ask("GET", "tenants/acme")).status == 404


async def test_requests_that_fit_no_route_are_refused_with_a_reason() -> None:
    async with running_http() as scene:
        for verb, path, status in (
            ("GET", "nothing", 404),
            ("GET", "tenants/acme/x/y/z", 404),
            ("GET", "tenants/%ff", 400),
            ("PATCH", "tenants/acme", 405),
        ):
            answer = await scene.ask(verb, path)
            assert (answer.status, bool(answer.reason)) == (status, True), answer
        for body in (b"{", b"[]", b'{"adminRoles": 7}', b"\xff", b"[" * 60_000, b'{"adminRoles": ["\\ud800"]}'):
            answer = await scene.ask("PUT", "tenants/acme", raw=body)
            assert (answer.status, bool(answer.reason)) == (400, True), answer
        assert (await scene.ask("PUT", "tenants/acme", raw=b"x" * 10_000_000)).status == 413
        assert (await scene.ask("GET", "tenants")).body == ["public"]


async def test_a_change_is_made_though_its_time_for_http_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    began, go_on = asyncio.Event(), asyncio.Event()
    delete = Topics.delete

    async def delete_slowly(self: Topics, name: TopicName, *, force: bool) -> None:
        began.set()
        await go_on.wait()
        await delete(self, name, force=force)

    monkeypatch.setattr(Topics, "delete", delete_slowly)
    async with running_broker() as broker:
        await broker.admin.topics.create("t")
        async with serving_http(broker, HttpSettings(http_exchange_timeout_seconds=0.1)) as scene:
            with pytest.raises(ConnectionError):
                await scene.ask("DELETE", "persistent/public/default/t")
            assert began.is_set()
            go_on.set()
            while await broker.admin.topics.list("public/default"):
                await asyncio.sleep(0)
