"""Serve the admin calls on the paths of Pulsar's REST API, /admin/v2 and /lookup/v2.

The column `routes` of the table of admin calls (magnetar_wire/admin/http/route.py) declares path, query, body and
answer of each call. A request becomes the call's request message, `AdminService.call` carries it out as for gRPC,
and the response message is made into the answer. So HTTP and gRPC can't differ, and any broker answers: calls on a
topic or bundle are forwarded to the owner, and there are no redirects.

A request that is refused is answered with a JSON object `{"reason": …}`:

    400     the body is not JSON, or does not fit its declaration; the path or query can't be decoded
    404     there is no such path, or what it names does not exist
    405     the path has no such verb, or the broker can't do it yet: the reason names what is missing
    412     the body has a value that is not allowed
    413     the body is larger than the route's maximum or `http_max_body_bytes`, or the stored message than
            `http_max_uncompressed_message_bytes`
    415     the body is not sent as JSON
    422     the schema in the body is not valid
    429     too many admin calls are being served, too many large bodies received, or too many large answers sent
            (answer_budget.py)
    503     nothing was done: the broker has no session with its metadata store, or the topic's owner can't serve it now
    else    what the route declares for the problem, or `route.py` for all routes
    500     it failed, and may have been done or not

The header `X-Magnetar-Error` has the name of the problem's code, which Python's admin client raises the same error from
as with gRPC. Each of the response's `warnings` becomes a header `Warning`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import PlainTextResponse, Response
from starlette.types import Receive, Scope, Send

from magnetar_broker.admin.admin_service import AdminService
from magnetar_broker.http.answer_budget import AnswerBudget, BudgetExceeded, send_answer
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_wire.admin.call import AdminCall
from magnetar_wire.admin.calls import ADMIN_CALLS
from magnetar_wire.admin.http.raw_answer import RawAnswer
from magnetar_wire.admin.http.route import InvalidTarget, Route
from magnetar_wire.admin.http.route_table import RouteTable, UnsupportedFamily, UnsupportedRoute
from magnetar_wire.admin.json.values import InvalidJson, OutOfRange, parse_json
from magnetar_wire.admin.rows.unsupported import UNSUPPORTED, UNSUPPORTED_FAMILIES
from magnetar_wire.errors import WireError
from magnetar_wire.process.http_server import allow_body
from magnetar_wire.transport import Code, Refusal

__all__ = ["AdminApi", "refuse"]

_log = logging.getLogger(__name__)
_JSON: Final = "application/json"
_encode: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_NO_CONTENT: Final = 204
_NO_METHOD: Final = 405
_TOO_LARGE: Final = 413
_EXCESS: Final = 429
_WRONG_TYPE: Final = 415
# A stored message above this size is decompressed in a thread.
_MAX_BYTES_IN_LOOP: Final = 256 * 1024
# Of a body. One of the usual maximum size has fewer.
_MAX_VALUES: Final = 150_000
_CONTROLS: Final = re.compile(r"[\x00-\x1f\x7f]+")
_REFUSALS: Final = {Code.UNAVAILABLE: 503, Code.RESOURCE_EXHAUSTED: 429, Code.INVALID_ARGUMENT: 400}
# The codes of problems that have a status, but come from no call.
_ERRORS: Final = {
    400: ErrorCode.INVALID_ARGUMENT,
    412: ErrorCode.INVALID_ARGUMENT,
    404: ErrorCode.UNSUPPORTED,
    405: ErrorCode.UNSUPPORTED,
    413: ErrorCode.INVALID_ARGUMENT,
    415: ErrorCode.INVALID_ARGUMENT,
    422: ErrorCode.INVALID_ARGUMENT,
    429: ErrorCode.TOO_MANY_REQUESTS,
    503: ErrorCode.SERVICE_NOT_READY,
}
# Headers are latin-1: other characters of a warning are replaced.
_MAX_WARNING_CHARACTERS: Final = 500


class AdminApi:
    def __init__(
        self, find_service: Callable[[], AdminService | None], budget: AnswerBudget, max_message_bytes: int
    ) -> None:
        """`find_service`: the admin service of the broker's session; None: it has none. `max_message_bytes`: the
        maximum size of a stored message in an answer, uncompressed."""
        self._find_service = find_service
        self._budget = budget
        self._max_message_bytes = max_message_bytes
        self._table: RouteTable[tuple[AdminCall, Route] | UnsupportedRoute | UnsupportedFamily] = RouteTable(
            _list_routes(), [(family.segments, family) for family in UNSUPPORTED_FAMILIES]
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request whose path begins with /admin/v2, /admin/v3 or /lookup/v2.

        It is an ASGI application of its own: Starlette's routing matches decoded paths, in which an escaped slash is a
        slash, and would take longer than what it routes to.
        """
        # What the answer takes from the budget until it is sent.
        with contextlib.ExitStack() as held:
            try:
                answer = await self._answer_request(scope, receive, held)
            except ClientDisconnect:
                return
            except BudgetExceeded as error:
                answer = refuse(_EXCESS, str(error))
            except Exception as error:  # noqa: BLE001 (a bug of this broker: the log has the traceback)
                _log.exception("%s %s failed", scope["method"], scope["path"])
                answer = refuse(500, f"the broker failed: {type(error).__name__}")
            await send_answer(answer, scope, receive, send)

    async def _answer_request(self, scope: Scope, receive: Receive, held: contextlib.ExitStack) -> Response:
        """Return the answer alone: while it is sent, the response that it was made from is freed."""
        found = await self._serve(scope, receive)
        if isinstance(found, Response):
            return found
        call, route, response = found
        # The answer to a change is sent in any case.
        may_refuse = call.idempotent
        size = _measure(route, response)
        if size > self._max_message_bytes:
            text = (
                f"the stored message has {size:,} bytes uncompressed, above the maximum over HTTP of "
                f"{self._max_message_bytes:,} (http_max_uncompressed_message_bytes): read it over gRPC, with a "
                "magnetar:// service URL"
            )
            return refuse(_TOO_LARGE, text, ErrorCode.Name(ErrorCode.MESSAGE_TOO_BIG))
        if size > _MAX_BYTES_IN_LOOP:
            held.enter_context(self._budget.hold(size, may_refuse=may_refuse))
            return await asyncio.to_thread(_answer, route, response)
        answer = _answer(route, response)
        held.enter_context(self._budget.hold(len(answer.body), may_refuse=may_refuse))
        return answer

    async def _serve(self, scope: Scope, receive: Receive) -> Response | tuple[AdminCall, Route, Any]:
        """Make the call. Return it with its route and response, or the refusal of the request."""
        verb, raw_path = scope["method"], scope["raw_path"]
        try:
            match = self._table.find("GET" if verb == "HEAD" else verb, raw_path)
        except InvalidTarget as error:
            return refuse(400, str(error))
        if match is None:
            return refuse(404, f"there is no path {raw_path.decode('latin-1')[:200]}: /openapi.json lists all paths")
        if match.found is None:
            return _answer_other_verb(verb, match.verbs)
        if isinstance(match.found, UnsupportedRoute | UnsupportedFamily):
            return refuse(_NO_METHOD, f"{match.found.missing} is not supported yet")
        call, route = match.found
        message = call.request()
        try:
            allow_body(scope, route.max_body_bytes)
            # Also of a request whose body is not used, so that its size is limited.
            body = await _read_body(receive)
            query = scope["query_string"].decode("ascii", "replace")
            if route.body is not None and body:
                _check_content(scope, route)
            value = None if route.body is None else parse_json(body, _MAX_VALUES)
            route.make_request(message, match.values, query, value, Headers(scope=scope) if route.headers else None)
        except InvalidJson as error:
            return refuse(route.out_of_range_status if isinstance(error, OutOfRange) else error.status, str(error))
        except InvalidTarget as error:
            return refuse(400, str(error))
        except HTTPException as error:
            return refuse(error.status_code, error.detail)
        service = self._find_service()
        if service is None:
            return refuse(503, "the broker has no session with its metadata store yet: try again later")
        try:
            response = await service.call(call.name, message, _find_address(scope))
        except Refusal as error:
            return refuse(_REFUSALS.get(error.code, 500), str(error))
        return call, route, response


def _list_routes() -> Iterator[tuple[str, list[str], tuple[AdminCall, Route] | UnsupportedRoute]]:
    for call in ADMIN_CALLS.values():
        for route in call.routes:
            if route.client_only:
                continue
            yield route.verb, route.segments, (call, route)
    for unsupported in UNSUPPORTED:
        yield unsupported.verb, unsupported.segments, unsupported


def _find_address(scope: Scope) -> str:
    """Return the address of the client; empty: it is not known."""
    host, port = scope.get("client") or ("", 0)
    return f"{host}:{port}" if host else ""


async def _read_body(receive: Receive) -> bytes:
    """Return the body, whose size the server limits (http_server.py)."""
    chunks = []
    while True:
        message = await receive()
        if message["type"] != "http.request":
            raise ClientDisconnect
        chunks.append(message.get("body", b""))
        if not message.get("more_body", False):
            return b"".join(chunks)


def _check_content(scope: Scope, route: Route) -> None:
    """Raise HTTPException if the body's headers do not fit JSON. A body without a content type is taken for JSON."""
    for name, value in scope["headers"]:
        text = value.decode("latin-1").partition(";")[0].strip().lower()
        if name == b"content-type" and text not in (_JSON, route.object_type):
            raise HTTPException(_WRONG_TYPE, f"the content type of the body is {text[:100]!r}: send {_JSON}")
        if name == b"content-encoding" and text != "identity":
            raise HTTPException(_WRONG_TYPE, f"the body is encoded as {text[:100]!r}: send it as it is")


def _answer_other_verb(verb: str, known: Sequence[str]) -> Response:
    """Answer a verb that is not in the table."""
    verbs = ", ".join(sorted({*known, *(["HEAD"] if "GET" in known else []), "OPTIONS"}))
    if verb == "OPTIONS":
        return PlainTextResponse(verbs, headers={"Allow": verbs})
    answer = refuse(_NO_METHOD, f"{verb[:100]} is not a method of this path: use {verbs}")
    answer.headers["Allow"] = verbs
    return answer


def _measure(route: Route, response: Any) -> int:
    """Return the size of a body that may be much larger than the response; 0: it is not, or there is none."""
    if not isinstance(route.answer, RawAnswer) or response.HasField("problem"):
        return 0
    if route.answer.find_refusal(response) is not None:
        return 0
    try:
        return route.answer.measure(response)
    except WireError:
        return 0  # `_answer` reports it


def _answer(route: Route, response: Any) -> Response:
    if response.HasField("problem"):
        code = response.problem.code
        return refuse(route.find_status(code, response.problem.about), response.problem.text, ErrorCode.Name(code))
    if isinstance(route.answer, RawAnswer):
        refusal = route.answer.find_refusal(response)
        if refusal is not None:
            return refuse(*refusal)
        try:
            headers, content = route.answer.to_http(response)
        except WireError as error:
            return refuse(500, f"the stored message can't be decoded: {error}")
        media_type = None if route.answer.status == _NO_CONTENT else route.answer.content_type
        raw = Response(content, route.answer.status, media_type=media_type)
        for name, values in headers.items():
            for one in [values] if isinstance(values, str) else values:
                # In this case: Pulsar's client looks for one of them by its exact name.
                raw.raw_headers.append((name.encode("latin-1"), _format_header(one).encode("latin-1")))
        return raw
    value = None if route.answer is None else route.answer.to_json(response)
    if value is None:
        answer = Response(status_code=route.empty_status)
    else:
        content = _encode(value).encode()
        answer = Response(content, media_type=_JSON)
    for warning in getattr(response, "warnings", ()):
        text = _format_header(warning[:_MAX_WARNING_CHARACTERS].replace('"', "'"))
        answer.headers.append("Warning", f'299 magnetar "{text}"')
    return answer


def _format_header(text: str) -> str:
    """Return the text as a header can have it: in latin-1, on one line, without control characters."""
    return _CONTROLS.sub(" ", text.encode("latin-1", "replace").decode("latin-1")).strip()


def refuse(status: int, reason: str, error: str = "") -> Response:
    """Return the answer to a refused request. `error`: the name of the problem's code; empty: that of the status."""
    error = error or ErrorCode.Name(_ERRORS.get(status, ErrorCode.INTERNAL_ERROR))
    # Names of clients are in reasons: half of a surrogate pair can't be encoded otherwise.
    content = json.dumps({"reason": reason}, ensure_ascii=False).encode("utf-8", "backslashreplace")
    return Response(content, status, headers={"X-Magnetar-Error": error}, media_type=_JSON)
