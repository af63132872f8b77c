"""/openapi.json and /docs: that they describe every path, and that programs and people can read them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Any, Final

import pytest
from openapi_spec_validator import validate

from magnetar_broker.http.docs_page import render_page
from magnetar_broker.http.openapi import describe_api
from magnetar_protos import admin_pb2
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_wire.admin.call import AdminCall, Method, Role, Scope
from magnetar_wire.admin.calls import ADMIN_CALLS
from magnetar_wire.admin.http.route import Route
from magnetar_wire.admin.http.route_table import UnsupportedRoute
from magnetar_wire.admin.json.parts import Field, Object
from magnetar_wire.admin.rows.unsupported import UNSUPPORTED
from tests.unit.broker.http.admin_scene import running_http

DOCUMENT: Final = describe_api(ADMIN_CALLS.values(), UNSUPPORTED, "1")


def _shape(path: str) -> str:
    return re.sub(r"\{[\w.]+\}", "{}", path)


def _find_all(value: Any, name: str) -> Iterator[Any]:
    if isinstance(value, dict):
        if name in value:
            yield value[name]
        value = list(value.values())
    if isinstance(value, list):
        for one in value:
            yield from _find_all(one, name)


def test_the_document_is_openapi() -> None:
    """ADM-1: tools that read OpenAPI can use the admin API."""
    validate(DOCUMENT)


def test_every_path_is_in_the_document() -> None:
    described = {(verb.upper(), _shape(path)) for path, found in DOCUMENT["paths"].items() for verb in found}
    routes: list[Route | UnsupportedRoute] = [
        route for call in ADMIN_CALLS.values() for route in call.routes if not route.client_only
    ]
    for route in [*routes, *UNSUPPORTED]:
        path = _shape("/" + "/".join(route.segments))
        assert (route.verb, path) in described
    assert len(routes) + len(UNSUPPORTED) == sum(1 for _, path in described if re.match(r"/(admin|lookup)/", path))


def test_operations_have_readable_names() -> None:
    """Generated clients name their methods by them."""
    names = {
        operation["operationId"]: f"{verb.upper()} {path}"
        for path, found in DOCUMENT["paths"].items()
        for verb, operation in found.items()
    }
    assert len(names) == sum(map(len, DOCUMENT["paths"].values()))
    assert not [name for name in names if name.strip("0123456789") != name]
    topic = "/admin/v2/{domain}/{tenant}/{namespace}/{topic}"
    for name, path in (
        ("set_namespace_retention", "POST /admin/v2/namespaces/{tenant}/{namespace}/retention"),
        ("remove_topic_message_ttl", f"DELETE {topic}/messageTTL"),
        ("find_message_id", f"GET {topic}/messageid/{{timestamp}}"),
        ("skip_all", f"POST {topic}/subscription/{{subName}}/skip_all"),
        ("unload_bundle", "PUT /admin/v2/namespaces/{tenant}/{namespace}/{bundle}/unload"),
    ):
        assert names[name] == path


def test_references_are_resolved() -> None:
    for reference in _find_all(DOCUMENT, "$ref"):
        found: Any = DOCUMENT
        for name in reference.removeprefix("#/").split("/"):
            found = found[name]


def test_an_operation_has_what_its_row_declares() -> None:
    row = AdminCall(
        "do",
        admin_pb2.DeleteRequest,
        admin_pb2.NamespaceChanged,
        Scope.ANY_BROKER,
        Role.SUPERUSER,
        methods=(Method("things.do(name: str) -> None", "Do `it`. Twice."),),
        routes=(
            Route("PUT", "/things/{name:topic}", query={"force": "force"}, statuses={ErrorCode.NOT_ALLOWED: 418}),
            Route("DELETE", "/things/{name:topic}", body=Object({"hard": Field("force")}), needs_body=True),
        ),
    )
    document = describe_api([row], [UnsupportedRoute("GET", "/things/{name:topic}", "looking at things")], "1")
    (path,) = (path for path in document["paths"] if path.startswith("/things"))
    assert path == "/things/{domain}/{tenant}/{namespace}/{topic}"
    put, delete, get = (document["paths"][path][verb] for verb in ("put", "delete", "get"))
    assert [one["name"] for one in put["parameters"]] == ["domain", "tenant", "namespace", "topic", "force"]
    assert put["parameters"][0]["schema"]["enum"] == ["persistent", "non-persistent"]
    assert put["parameters"][-1]["schema"] == {"type": "boolean"}
    assert (put["summary"], put["description"], put["tags"]) == ("Do `it`", "Do `it`. Twice.", ["things"])
    assert put["responses"]["418"]["description"] == "Refused: NOT_ALLOWED"
    assert list(put["responses"]["204"]["headers"]) == ["Warning"]
    assert delete["requestBody"]["required"] is True
    assert document["components"]["schemas"]["DeleteRequest"]["properties"] == {"hard": {"type": "boolean"}}
    assert (get["x-missing"], list(get["responses"])) == ("looking at things", ["400", "404", "405"])


def test_paths_that_differ_by_a_name_are_one() -> None:
    rows = [
        AdminCall(
            f"do_{name}",
            admin_pb2.TopicRequest,
            admin_pb2.Done,
            Scope.ANY_BROKER,
            Role.SUPERUSER,
            routes=(Route(verb, f"/things/{{{name}}}"),),
        )
        for verb, name in (("GET", "topic:segment"), ("PUT", "thing:segment"))
    ]
    things = describe_api(rows, [], "1")["paths"]["/things/{topic}"]
    assert [one["name"] for verb in ("get", "put") for one in things[verb]["parameters"]] == ["topic", "topic"]


class _Page(HTMLParser):
    """Collects the page's links and identifiers, and fails where elements are not nested."""

    VOID: Final = {"meta", "th", "td", "tr"}

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag not in ("script", "img", "link", "iframe")
        if tag not in self.VOID:
            self.open.append(tag)
        given = dict(attrs)
        self.ids += [given["id"] or ""] if "id" in given else []
        self.links += [given["href"] or ""] if "href" in given else []

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.VOID:
            assert self.open.pop() == tag


def test_the_page_shows_every_operation_and_is_complete_in_itself() -> None:
    page = _Page()
    page.feed(render_page(DOCUMENT))
    page.close()
    assert page.open == []
    assert len(page.ids) == len(set(page.ids))
    assert set(_find_all(DOCUMENT, "operationId")) <= set(page.ids)
    assert {link for link in page.links if not link.startswith("#")} == {"openapi.json"}
    assert {link[1:] for link in page.links if link.startswith("#")} <= set(page.ids)


def test_the_page_escapes_texts() -> None:
    document = describe_api([], [UnsupportedRoute("GET", "/x", "<script>alert(1)</script>")], "<b>")
    assert "<script" not in render_page(document)
    assert "<b>" not in render_page(document).partition("Version")[2][:10]


@pytest.mark.parametrize("path", ["/openapi.json", "/docs"])
async def test_it_is_served_with_an_etag(path: str) -> None:
    async with running_http() as scene:
        assert path in (await scene.ask("GET", "/")).body["see"]
        first = await scene.ask("GET", path)
        assert first.status == 200
        again = await scene.ask("GET", path, headers={"If-None-Match": first.headers["etag"]})
        assert (again.status, again.body) == (304, None)
