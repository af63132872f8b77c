"""How requests on Pulsar's REST paths become admin calls, and their responses answers."""

from __future__ import annotations

from tests.unit.broker.http.admin_scene import running_http


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
