"""Make the HTTP request of an admin call, and the call's response of the HTTP answer.

A broker of ours names the error's code in a header, X-Magnetar-Error. Pulsar's brokers answer with a status and a text:
the exception is chosen by these and by the route, as well as they allow. Some statuses stand for several problems, for
example 412 for an invalid name and for a topic in use; then words of the text decide.

A status that does not say whether anything was done (502, 503 and 504 without the header) is `Failed`.
"""

from __future__ import annotations

import html
import logging
import re
from collections.abc import Mapping
from operator import attrgetter
from typing import Any, Final, cast

from magnetar.admin._http_exchange import HttpAnswer
from magnetar_protos.broker_pb2 import ErrorCode, Problem
from magnetar_wire.admin.call import AdminCall
from magnetar_wire.admin.http.raw_answer import RawAnswer
from magnetar_wire.admin.http.route import TOPIC_KINDS, Route
from magnetar_wire.admin.json.values import InvalidJson, parse_json
from magnetar_wire.errors import InvalidTopicName
from magnetar_wire.topic_name import NamespaceName, TopicName
from magnetar_wire.transport import Code, Failed, Rejected

__all__ = ["Refused", "choose_route", "make_problem", "read_response"]

log = logging.getLogger("magnetar")

_ERRORS: Final = frozenset(ErrorCode.keys())
_MAX_REASON: Final = 1000
_STACK: Final = "\n\nStacktrace:"
# Pulsar's brokers answer some refusals with a page of their HTTP server, Jetty.
_ERROR_PAGE: Final = re.compile(r"<title>Error \d{3} (.*?)</title>", re.DOTALL)
_MAX_PAGE: Final = 20_000
_WARNING: Final = re.compile(r'\d{3} \S+ "((?:[^"\\]|\\.)*)"')
_UNKNOWN_OUTCOME: Final = (502, 503, 504)
_REJECTED: Final = {401: Code.UNAUTHENTICATED, 403: Code.PERMISSION_DENIED, 429: Code.RESOURCE_EXHAUSTED}
# Statuses that mean the same on all routes, if the route itself does not declare another code for them.
_CODES: Final[Mapping[int, int]] = {
    400: ErrorCode.INVALID_ARGUMENT,
    405: ErrorCode.UNSUPPORTED,
    406: ErrorCode.NOT_ALLOWED,
    413: ErrorCode.INVALID_ARGUMENT,
    415: ErrorCode.UNSUPPORTED,
    422: ErrorCode.INVALID_ARGUMENT,
    500: ErrorCode.INTERNAL_ERROR,
    501: ErrorCode.UNSUPPORTED,
}
_INVALID: Final = re.compile(r"\b(not valid|invalid|illegal)\b", re.IGNORECASE)
_EXISTS: Final = re.compile(r"\balready exists?\b", re.IGNORECASE)
_NOT_A_TOPIC: Final = re.compile(r"\s*(namespace|tenant|property|cluster|message|schema)\b", re.IGNORECASE)


class Refused(Exception):
    """A request that is not sent, because no broker could carry it out."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.problem = make_problem(code, text)


def make_problem(code: int, text: str) -> Problem:
    problem = Problem(text=text)
    problem.code = cast(ErrorCode, code)
    return problem


def choose_route(call: AdminCall, request: Any) -> Route:
    """Return the first route that carries the request, in which names are made full ones. Raises Refused."""
    if not call.routes:
        raise Refused(
            ErrorCode.UNSUPPORTED,
            f"admin.{call.name} is not possible over HTTP, because Pulsar's REST API has nothing like it: use a "
            "magnetar:// service URL",
        )
    for name, kind in {one: None for route in call.routes for one in route.placeholders}:
        if attrgetter(name)(request) or all((name, kind) in route.placeholders for route in call.routes):
            _check_name(request, name, kind)
    for route in call.routes:
        if route.carries(request):
            return route
    fields = ", ".join(field.name for field, _ in request.ListFields())
    raise Refused(
        ErrorCode.UNSUPPORTED,
        f"admin.{call.name} with {fields} together is not possible over HTTP, because Pulsar's REST API has no such "
        "combination: use a magnetar:// service URL",
    )


def _check_name(request: Any, name: str, kind: str) -> None:
    """Check a field that becomes part of a path. Short names of topics become full ones."""
    value = attrgetter(name)(request)
    try:
        if kind in TOPIC_KINDS:
            setattr(request, name, str(TopicName.parse(value)))
        elif kind == "namespace":
            NamespaceName.parse(value)
        elif value in ("", ".", ".."):
            raise Refused(ErrorCode.INVALID_ARGUMENT, f"{name} = {value!r} is not possible in a path of HTTP")
    except InvalidTopicName as error:
        code = ErrorCode.INVALID_TOPIC_NAME if kind in TOPIC_KINDS else ErrorCode.INVALID_ARGUMENT
        raise Refused(code, str(error)) from None


def read_response(call: AdminCall, route: Route, answer: HttpAnswer) -> Any:
    """Return the call's response; of a request that was refused it has a problem. Raises TransportError."""
    response: Any = call.response()
    if not 200 <= answer.status < 300:
        if isinstance(route.answer, RawAnswer):
            reason, _ = _read_reason(answer)
            if route.answer.fill_refusal(response, answer.status, reason):
                return response
        response.problem.CopyFrom(_read_problem(route, answer))
        return response
    try:
        route.read_answer(response, answer.headers, answer.body)
    except InvalidJson as error:
        raise Failed(f"the answer of {answer.address} can't be read: {error}") from error
    _read_warnings(response, answer)
    return response


def _read_warnings(response: Any, answer: HttpAnswer) -> None:
    """Add the warnings to the response; those that it has no field for are logged."""
    for line in answer.warnings:
        found = _WARNING.match(line)
        text = found[1] if found is not None else line
        if "warnings" in response.DESCRIPTOR.fields_by_name:
            response.warnings.append(text)
        else:
            log.warning("%s: %s", answer.address, text)


def _read_problem(route: Route, answer: HttpAnswer) -> Problem:
    """Raises TransportError for an answer that is not a broker's own."""
    reason, is_brokers = _read_reason(answer)
    error = answer.headers.get("x-magnetar-error", "")
    if error in _ERRORS:
        return make_problem(ErrorCode.Value(error), reason)
    text = f"{answer.address} answered with {answer.status}: {reason}"
    if answer.status in _REJECTED:
        raise Rejected(_REJECTED[answer.status], text)
    if answer.status in _UNKNOWN_OUTCOME or not 400 <= answer.status < 600:
        raise Failed(text)
    if answer.status == 404 and not is_brokers:
        return make_problem(
            ErrorCode.UNSUPPORTED,
            f"{answer.address} has no path {route.path}: it is not a broker's port for HTTP (8080 by default), or "
            "its version can't do that",
        )
    return make_problem(_choose_code(route, answer.status, reason), reason)


def _read_reason(answer: HttpAnswer) -> tuple[str, bool]:
    """Return why the request was refused, and whether the text is in a broker's form."""
    try:
        value = parse_json(answer.body)
    except InvalidJson:
        value = None
    is_brokers = isinstance(value, dict) and isinstance(value.get("reason"), str)
    text = value["reason"] if is_brokers else _read_page(answer.body.decode(errors="replace"))
    # Pulsar's brokers add the stack to internal errors.
    return " ".join(text.partition(_STACK)[0].split())[:_MAX_REASON] or "(no reason)", is_brokers


def _read_page(text: str) -> str:
    """Return the text; of an error page of Pulsar's HTTP server, its reason."""
    title = _ERROR_PAGE.search(text[:_MAX_PAGE])
    return text[:_MAX_REASON] if title is None else html.unescape(title[1])


def _choose_code(route: Route, status: int, reason: str) -> int:
    declared = {one: code for code, one in reversed(list(route.statuses.items()))}
    if status == 404:
        return _choose_missing(route, reason)
    if status == 409 and _EXISTS.search(reason):
        return ErrorCode.ALREADY_EXISTS
    if status in declared:
        return declared[status]
    if status == 412 and _INVALID.search(reason):
        return ErrorCode.INVALID_TOPIC_NAME if "topic name" in reason.lower() else ErrorCode.INVALID_ARGUMENT
    return _CODES.get(status, ErrorCode.NOT_ALLOWED if status < 500 else ErrorCode.UNKNOWN_ERROR)


def _choose_missing(route: Route, reason: str) -> int:
    names = [name for name, _ in route.placeholders]
    if "subscription" in names and "subscription" in reason.lower():
        return ErrorCode.SUBSCRIPTION_NOT_FOUND
    if any(kind in TOPIC_KINDS for _, kind in route.placeholders) and not _NOT_A_TOPIC.match(reason):
        return ErrorCode.TOPIC_NOT_FOUND
    return ErrorCode.NOT_FOUND
