"""Describe the HTTP API as an OpenAPI 3.1 document, from the table of admin calls.

Each route of the table is an operation: its path with one parameter for each segment, the query and body with the types
and bounds of the request's fields, and the answers. Paths that are answered with 405 (rows/unsupported.py) are in it,
too, with `x-missing`. An operation also names the call on gRPC (`x-call`), the methods of `magnetar.admin` (`x-python`)
and the role that Pulsar asks for (`x-role`).

The JSON schema of a message that has a name (`title`) is written once, below /components/schemas. OpenAPI identifies
paths by their placeholders' positions: where two routes of one path name a placeholder differently, the first name is
used for both.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

from starlette.requests import Request
from starlette.responses import Response

from magnetar_broker.http.docs_page import render_page
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_wire.admin.call import AdminCall
from magnetar_wire.admin.calls import ADMIN_CALLS
from magnetar_wire.admin.http.raw_answer import RawAnswer
from magnetar_wire.admin.http.route import Route
from magnetar_wire.admin.http.route_table import UnsupportedRoute
from magnetar_wire.admin.json.parts import Field
from magnetar_wire.admin.rows.unsupported import UNSUPPORTED, UNSUPPORTED_FAMILIES
from magnetar_wire.process.version import read_version

__all__ = ["ApiDescription", "describe_api"]

Json: TypeAlias = dict[str, Any]

_JSON: Final = "application/json"
_NO_CONTENT: Final = 204
# The page loads nothing.
_CONTENT_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'"
_PLACEHOLDER: Final = re.compile(r"\{[\w.]+\}")
_DOMAIN: Final = {"type": "string", "enum": ["persistent", "non-persistent"]}
_TEXT: Final = {"type": "string", "minLength": 1}
# Names of tenants and namespaces (topic_name.py).
_NAME: Final = {"type": "string", "minLength": 1, "maxLength": 128, "pattern": "^[-=:.A-Za-z0-9_]+$"}
_PROBLEM: Final = {"$ref": "#/components/schemas/Problem"}
# What segments of paths are, by their names.
_SEGMENTS: Final = {
    "domain": "`persistent`, or `non-persistent` for topics that are not stored",
    "topic": "the topic's name without domain and namespace; other characters than letters and digits percent-encoded. "
    "A partition's name ends in `-partition-` and its number",
    "bundle": "a range of hashes, e.g. `0x00000000_0x40000000`",
}
# What the paths of all policies have.
_POLICY_PATH: Final = ("admin", "v2", "namespaces", "{tenant}", "{namespace}", "{domain}", "{topic}")
# The routes that are not admin calls: path, summary, content type, whether 503 is an answer, too.
_OPERATION: Final = (
    ("/", "Name, version and addresses of the broker, and its other paths", _JSON, False),
    ("/health", "Check whether the broker can serve", _JSON, True),
    ("/ready", "The same as /health", _JSON, True),
    ("/status", "Describe the broker", _JSON, False),
    ("/metrics", "The metrics, for Prometheus", "text/plain", False),
    ("/openapi.json", "This description", _JSON, False),
    ("/docs", "This description as a page", "text/html", False),
)
_INTRODUCTION: Final = (
    "Any broker answers: calls on a topic or bundle are forwarded to its owner, and there are no redirects. "
    "A refused request has changed nothing, and its answer is a JSON object with a `reason`. "
    "So it is after 503 with the header `X-Magnetar-Error: SERVICE_NOT_READY`, and after 429: repeat the request. "
    "After 500, after 503 without that header, which a proxy sends, or without an answer, the change may have been "
    "made completely, partly or not at all. A change is carried out to its end though its client disconnects. "
    "Paths that begin with these are answered with 405, unless they are listed: "
    + ", ".join(family.path for family in UNSUPPORTED_FAMILIES)
    + "."
)
_WARNING: Final = {
    "description": 'What was stored, but has no effect yet, or can\'t be met now: `299 magnetar "…"`',
    "schema": {"type": "string"},
}
_PROBLEM_STATUSES: Final = {
    400: "The path, the query or the body can't be decoded, or has a wrong type",
    404: "It does not exist",
    405: "It is not supported yet: the reason names what is missing",
    409: "It conflicts with what is there",
    412: "It is not allowed, or a value is out of range",
    413: "The body, or a message, is too large",
    415: "The body is not sent as JSON, or is compressed",
    422: "The schema is not valid",
    429: "Too many calls are being served, or too many large bodies received or answers sent: repeat it later",
    431: "The request line and the headers are too large",
    500: "It failed, and may have been done or not",
    503: "Nothing was done: the broker has no session with its metadata store, or the topic's owner can't serve it now",
}


class ApiDescription:
    """Serves the document, and the page that is made from it. Both are made when the first of them is requested."""

    def __init__(self) -> None:
        # The body and its ETag, by path.
        self._made: dict[str, tuple[bytes, str]] = {}

    async def serve(self, request: Request) -> Response:
        if not self._made:
            document = describe_api(ADMIN_CALLS.values(), UNSUPPORTED, read_version())
            for path, text in (
                ("/openapi.json", json.dumps(document, ensure_ascii=False, separators=(",", ":"))),
                ("/docs", render_page(document)),
            ):
                body = text.encode()
                self._made[path] = body, f'"{hashlib.sha256(body).hexdigest()[:32]}"'
        body, etag = self._made[request.url.path]
        headers = {"ETag": etag, "Cache-Control": "no-cache", "Content-Security-Policy": _CONTENT_POLICY}
        if etag in request.headers.get("If-None-Match", ""):
            return Response(status_code=304, headers=headers)
        is_page = request.url.path == "/docs"
        return Response(body, headers=headers, media_type="text/html" if is_page else _JSON)


def describe_api(calls: Iterable[AdminCall], unsupported: Iterable[UnsupportedRoute], version: str) -> Json:
    """Return the OpenAPI document."""
    document = _Document(version)
    for call in calls:
        routes = [route for route in call.routes if not route.client_only]
        for route in routes:
            document.add_route(call, route, _make_id(call, route, routes[0]))
    for path, summary, content_type, may_fail in _OPERATION:
        document.add_plain(path, summary, content_type, may_fail)
    for missing in unsupported:
        document.add_unsupported(missing)
    return document.finish()


class _Document:
    def __init__(self, version: str) -> None:
        self._version = version
        self._paths: dict[str, Json] = {}
        # The first spelling of each path, by its shape: all placeholders the same.
        self._spelled: dict[str, str] = {}
        self._schemas: dict[str, Json] = {
            "Problem": {
                "title": "Problem",
                "type": "object",
                "properties": {"reason": {"type": "string", "description": "what was wrong, and what to do"}},
                "required": ["reason"],
            }
        }
        # A dict for its order: that of the table's rows.
        self._tags: dict[str, Json] = {}

    def add_plain(self, path: str, summary: str, content_type: str, may_fail: bool) -> None:
        schema: Json = {"type": "object"} if content_type == _JSON else {"type": "string"}
        content = {"content": {content_type: {"schema": schema}}}
        responses: Json = {"200": {"description": "OK"} | content}
        if may_fail:
            responses["503"] = {"description": "The broker can't serve: the reasons"} | content
        operation_id = "get_" + (path.strip("/").replace(".", "_") or "root")
        self._add("GET", path, "operation", {"operationId": operation_id, "summary": summary, "responses": responses})

    def add_route(self, call: AdminCall, route: Route, operation_id: str) -> None:
        operation: Json = {"operationId": operation_id} | _describe_text(call, route)
        parameters = [*self._path_parameters(call, route), *self._query_parameters(call, route)]
        if parameters:
            operation["parameters"] = parameters
        if route.body is not None:
            schema = self._share(route.body.schema(call.request.DESCRIPTOR))
            content = {kind: {"schema": schema} for kind in (_JSON, route.object_type) if kind}
            operation["requestBody"] = {"required": route.needs_body, "content": content}
            if route.max_body_bytes:
                operation["requestBody"]["x-max-bytes"] = route.max_body_bytes
        operation["responses"] = self._describe_answers(call, route)
        operation |= {"x-call": f"admin.{call.name}", "x-role": call.role.value}
        operation["x-python"] = [one.name for one in call.methods]
        self._add(route.verb, "/" + "/".join(route.segments), _find_tag(call), operation)

    def add_unsupported(self, route: UnsupportedRoute) -> None:
        path = "/" + "/".join(route.segments)
        parameters = [_path_parameter(segment[1:-1], _TEXT) for segment in route.segments if segment[0] == "{"]
        operation: Json = {
            "operationId": re.sub(r"\W+", "_", f"unsupported {route.verb} {path}").lower(),
            "summary": "Not supported yet",
            "description": f"{route.missing} is not supported yet.",
            "x-missing": route.missing,
        }
        if parameters:
            operation["parameters"] = parameters
        # The others are answered if the path can't be decoded, or its first segment is no domain.
        operation["responses"] = {str(status): _describe_problem(status, (), own=False) for status in (400, 404, 405)}
        self._add(route.verb, path, "not supported yet", operation)

    def finish(self) -> Json:
        responses = {
            str(status): {"description": text, "content": {_JSON: {"schema": _PROBLEM}}}
            for status, text in _PROBLEM_STATUSES.items()
        }
        return {
            "openapi": "3.1.0",
            "info": {"title": "Magnetar admin API", "version": self._version, "description": _INTRODUCTION},
            "tags": list(self._tags.values()),
            "paths": dict(sorted(self._paths.items())),
            "components": {"schemas": dict(sorted(self._schemas.items())), "responses": responses},
        }

    def _add(self, verb: str, path: str, tag: str, operation: Json) -> None:
        spelled = self._spelled.setdefault(_PLACEHOLDER.sub("{}", path), path)
        names = dict(zip(_PLACEHOLDER.findall(path), _PLACEHOLDER.findall(spelled), strict=True))
        for parameter in operation.get("parameters", ()):
            if parameter["in"] == "path":
                parameter["name"] = names[f"{{{parameter['name']}}}"][1:-1]
        self._tags[tag] = {"name": tag}
        self._paths.setdefault(spelled, {})[verb.lower()] = {"tags": [tag]} | operation

    def _path_parameters(self, call: AdminCall, route: Route) -> Iterator[Json]:
        paths = {shown: path for path, shown in route.shown_names.items()}
        for segment in route.segments:
            if segment[0] == "{":
                name = segment[1:-1]
                path = paths.get(name, name)
                is_field = "." in path or path in call.request.DESCRIPTOR.fields_by_name
                schema = Field(path).schema(call.request.DESCRIPTOR) if is_field else _TEXT
                yield _path_parameter(name, _TEXT if schema == {"type": "string"} else schema)

    def _query_parameters(self, call: AdminCall, route: Route) -> Iterator[Json]:
        for name, part in route.query.items():
            schema = (Field(part) if isinstance(part, str) else part).schema(call.request.DESCRIPTOR)
            default = route.query_defaults.get(name)
            shared = self._share(schema) | ({} if default is None else {"default": default})
            yield {"name": name, "in": "query", "schema": shared}
        for name in route.headers:
            yield {"name": name, "in": "header", "schema": {"type": "string"}}

    def _describe_answers(self, call: AdminCall, route: Route) -> Json:
        responses: Json = {}
        warned = "warnings" in call.response.DESCRIPTOR.fields_by_name
        headers: Json = {"headers": {"Warning": _WARNING}} if warned else {}
        if isinstance(route.answer, RawAnswer):
            described = {name: {"description": text, "schema": {}} for name, text in route.answer.headers.items()}
            body = {"schema": self._share(dict(route.answer.schema))} if route.answer.schema else {}
            content: Json = {} if route.answer.status == 204 else {"content": {route.answer.content_type: body}}
            answered = responses[str(route.answer.status)] = {"description": "OK"} | content
            if described or headers:
                answered["headers"] = described | headers.get("headers", {})
        elif route.answer is not None:
            schema = self._share(route.answer.schema(call.response.DESCRIPTOR))
            responses["200"] = {"description": "OK", "content": {_JSON: {"schema": schema}}} | headers
        if route.answer is None or (
            not isinstance(route.answer, RawAnswer) and route.answer.to_json(call.response()) is None
        ):
            text = "Done, without a body" if route.answer is None else "There is none: without a body"
            responses[str(route.empty_status)] = {"description": text} | headers
        for status, codes in route.problem_statuses.items():
            responses[str(status)] = _describe_problem(status, codes, own=status in route.statuses.values())
        for status in (400, 413, 415, 429, 431):
            responses[str(status)] = _describe_problem(status, (), own=False)
        return dict(sorted(responses.items()))

    def _share(self, schema: Any) -> Any:
        """Return the schema, with each schema of a name replaced by a reference to it."""
        if isinstance(schema, list):
            return [self._share(one) for one in schema]
        if not isinstance(schema, dict):
            return schema
        shared = {
            name: {key: self._share(one) for key, one in value.items()} if name == "properties" else self._share(value)
            for name, value in schema.items()
        }
        title = shared.get("title")
        if not isinstance(title, str):
            return shared
        name, number = title, 1
        while self._schemas.setdefault(name, shared) != shared:
            number += 1
            name = f"{title}{number}"
            shared = shared | {"title": name}
        return {"$ref": f"#/components/schemas/{name}"}


def _make_id(call: AdminCall, route: Route, first: Route) -> str:
    """Return the id of an operation. Generated clients make the names of their methods of it.

    The first route of a call has the call's name. The others add what their path has more than the first one's, and
    else the verb.
    """
    if _is_of_policy(call):
        is_removal = route.verb == "DELETE" or "remove" in route.fixed
        verb = "get" if route.verb == "GET" else "remove" if is_removal else "set"
        level = "topic" if "topic" in call.name else "namespace"
        return f"{verb}_{level}_{_to_words(_list_own_segments(route, _POLICY_PATH)) or 'policies'}"
    if route is first:
        return call.name
    own = _to_words(_list_own_segments(route, first.segments))
    if not own:
        own = route.verb.lower() if route.verb != first.verb else _to_words(route.segments[-1:])
    return own if own.startswith(f"{call.name}_") else f"{call.name}_{own}"


def _list_own_segments(route: Route, others: Sequence[str]) -> list[str]:
    return [segment for segment in route.segments if segment not in others]


def _to_words(segments: Sequence[str]) -> str:
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", "_".join(segments))
    return re.sub(r"\W+", "_", spaced.replace("{", "").replace("}", "")).lower()


def _is_of_policy(call: AdminCall) -> bool:
    return any("policies" in method.name for method in call.methods) and len(call.routes) > 1


def _find_tag(call: AdminCall) -> str:
    """Return the group of the call's methods. Policies, most of all paths, are a group of their own."""
    group = call.methods[0].name.partition(".")[0] if call.methods else call.name
    is_of_policies = any("policies" in method.name for method in call.methods)
    return f"policies of {group}" if is_of_policies else group


def _path_parameter(name: str, schema: Mapping[str, Any]) -> Json:
    described: Json = {"name": name, "in": "path", "required": True}
    if name in _SEGMENTS:
        described["description"] = _SEGMENTS[name]
    special: dict[str, Json] = {"domain": _DOMAIN, "tenant": _NAME, "namespace": _NAME}
    return described | {"schema": dict(special.get(name, schema))}


def _describe_text(call: AdminCall, route: Route) -> Json:
    text = route.summary or next((method.doc for method in call.methods if method.doc), "")
    first, _, rest = text.partition("\n\n")
    summary, stop, _ = " ".join(first.split()).partition(". ")
    if not summary:
        return {"summary": call.name.replace("_", " ").capitalize()}
    described = {"summary": summary.removesuffix(".")}
    if stop or rest:
        described["description"] = text.strip()
    return described


def _describe_problem(status: int, codes: Iterable[int], *, own: bool) -> Json:
    """Return the answer of a problem: the one that all routes share, unless it is the route's own."""
    if not own and status in _PROBLEM_STATUSES:
        return {"$ref": f"#/components/responses/{status}"}
    names = ", ".join(ErrorCode.Name(code) for code in codes)
    return {"description": f"Refused: {names}", "content": {_JSON: {"schema": _PROBLEM}}}
