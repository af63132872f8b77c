"""Serve the admin calls on the paths of Pulsar's REST API, /admin/v2 and /lookup/v2.

The column `routes` of the table of admin calls (magnetar_wire/admin/route.py) declares path, query, body and answer of
each call. A request is made into the call's request message, `AdminService.call` carries it out as it does for gRPC,
and the response message is made into the answer. So HTTP and gRPC can't differ, and any broker answers: calls on a
topic or bundle are forwarded to the owner, and there are no redirects.

A request that is refused is answered with a JSON object `{"reason": …}`:

    400     the body is not JSON, or does not fit its declaration; the path or query can't be decoded
    404     there is no such path, or what it names does not exist
    405     the path has no such verb, or the broker can't do it yet: the reason names what is missing
    412     the body has a value that is not allowed
    413     the body is larger than `http_max_body_bytes`
    429     too many admin calls are being served
    503     the broker has no session with its metadata store, or the topic's owner can't serve it now
    else    what the route declares for the problem, or `route.py` for all routes
    500     it failed, and may have been done or not

The header `X-Magnetar-Error` has the name of the problem's code, which Python's admin client raises the same error from
as with gRPC. Each of the response's `warnings` becomes a header `Warning`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from magnetar_broker.admin.admin_service import AdminService
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_wire.admin.call import AdminCall
from magnetar_wire.admin.calls import ADMIN_CALLS
from magnetar_wire.admin.json_parts import InvalidJson, OutOfRange, parse_json
from magnetar_wire.admin.route import InvalidTarget, RawAnswer, Route, RouteTable, UnsupportedRoute
from magnetar_wire.admin.unsupported import UNSUPPORTED
from magnetar_wire.transport import Code, Refusal

__all__ = ["AdminApi"]

_JSON: Final = "application/json"
_NO_METHOD: Final = 405
_REFUSALS: Final = {Code.UNAVAILABLE: 503, Code.RESOURCE_EXHAUSTED: 429, Code.INVALID_ARGUMENT: 400}
# The codes of problems that have a status, but come from no call.
_ERRORS: Final = {
    400: ErrorCode.INVALID_ARGUMENT,
    404: ErrorCode.UNSUPPORTED,
    405: ErrorCode.UNSUPPORTED,
    413: ErrorCode.INVALID_ARGUMENT,
    429: ErrorCode.TOO_MANY_REQUESTS,
    503: ErrorCode.SERVICE_NOT_READY,
}
# Headers are latin-1: other characters of a warning are replaced.
_MAX_WARNING_CHARACTERS: Final = 500


class AdminApi:
    def __init__(self, find_service: Callable[[], AdminService | None]) -> None:
        """`find_service`: the admin service of the broker's session; None: it has none."""
        self._find_service = find_service
        self._table: RouteTable[tuple[AdminCall, Route] | UnsupportedRoute] = RouteTable(_list_routes())

    async def serve(self, request: Request) -> Response:
        """Answer a request whose path begins with /admin/v2 or /lookup/v2."""
        raw_path: bytes = request.scope.get("raw_path") or request.url.path.encode()
        try:
            match = self._table.find(request.method, raw_path)
        except InvalidTarget as error:
            return _refuse(400, str(error))
        if match is None:
            return _refuse(404, f"there is no path {raw_path.decode('latin-1')[:200]}: /openapi.json lists all paths")
        if match.found is None:
            verbs = ", ".join(match.verbs)
            answer = _refuse(_NO_METHOD, f"{request.method} is not a method of this path: use {verbs}")
            answer.headers["Allow"] = verbs
            return answer
        if isinstance(match.found, UnsupportedRoute):
            return _refuse(_NO_METHOD, f"{match.found.missing} is not supported yet")
        call, route = match.found
        message = call.request()
        try:
            # Also of a request whose body is not used, so that its size is limited.
            body = await request.body()
            query = request.scope["query_string"].decode("latin-1")
            value = None if route.body is None else parse_json(body)
            route.make_request(message, match.values, query, value, request.headers)
        except InvalidJson as error:
            return _refuse(route.out_of_range_status if isinstance(error, OutOfRange) else error.status, str(error))
        except InvalidTarget as error:
            return _refuse(400, str(error))
        except HTTPException as error:
            return _refuse(error.status_code, error.detail)
        service = self._find_service()
        if service is None:
            return _refuse(503, "the broker has no session with its metadata store yet: try again later")
        try:
            response = await service.call(call.name, message)
        except Refusal as error:
            return _refuse(_REFUSALS.get(error.code, 500), str(error))
        return _answer(route, response)


def _list_routes() -> Iterator[tuple[str, list[str], tuple[AdminCall, Route] | UnsupportedRoute]]:
    for call in ADMIN_CALLS.values():
        for route in call.routes:
            if route.client_only:
                continue
            yield route.verb, route.segments, (call, route)
    for unsupported in UNSUPPORTED:
        yield unsupported.verb, unsupported.segments, unsupported


def _answer(route: Route, response: Any) -> Response:
    if response.HasField("problem"):
        code = response.problem.code
        return _refuse(route.find_status(code), response.problem.text, ErrorCode.Name(code))
    if isinstance(route.answer, RawAnswer):
        headers, content = route.answer.to_http(response)
        return Response(content, headers=headers, media_type=route.answer.content_type)
    value = None if route.answer is None else route.answer.to_json(response)
    if value is None:
        answer = Response(status_code=route.empty_status)
    else:
        content = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
        answer = Response(content, media_type=_JSON)
    for warning in getattr(response, "warnings", ()):
        text = warning[:_MAX_WARNING_CHARACTERS].encode("latin-1", "replace").decode("latin-1")
        answer.headers.append("Warning", '299 magnetar "{}"'.format(" ".join(text.replace('"', "'").split())))
    return answer


def _refuse(status: int, reason: str, error: str = "") -> Response:
    """`error`: the name of the problem's code; empty: that of the status."""
    error = error or ErrorCode.Name(_ERRORS.get(status, ErrorCode.INTERNAL_ERROR))
    return JSONResponse({"reason": reason}, status, headers={"X-Magnetar-Error": error})
