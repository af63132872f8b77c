"""How an admin call looks on HTTP: the column `routes` of the table of admin calls.

    Route("POST", "/admin/v2/tenants/{tenant}", body=Field("settings", of=TENANT_INFO))
    Route("DELETE", "/admin/v2/{name:topic}", query={"force": "force"})

A placeholder is a field of the request. It is one segment of the path, or several:

    {tenant}             one segment
    {namespace}          tenant/namespace; also {within:namespace}, if the field has another name
    {topic}              domain/tenant/namespace/topic; also {name:topic}. The domain is persistent or non-persistent
    {topic:stored}       tenant/namespace/topic: the domain is always persistent
    {remove}             one segment; if the field is repeated, its only element
    {start.time_ms}      one segment, as the only field of a nested message
    {entries=numMessages}   with its name in Pulsar's documentation, which errors and /openapi.json show

A broker finds the route of a request's path (route_table.py), and the route makes the call's request message of it. For
a client the route makes the HTTP request of a message. Segments are percent-decoded one by one, so that an escaped
slash stays part of its segment. No other library is used here, and nothing is sent.
"""

from __future__ import annotations

import base64
import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import parse_qsl, quote, urlencode

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_wire.admin.http.raw_answer import RawAnswer
from magnetar_wire.admin.json.parts import Field, Part
from magnetar_wire.admin.json.values import InvalidJson, format_value, parse_json

__all__ = ["DOMAINS", "TOPIC_KINDS", "HttpRequest", "InvalidTarget", "Route", "split_path"]

_PLACEHOLDER: Final = re.compile(r"\{([\w.]+)(?::(\w+))?(?:=(\w+))?\}")
# The segments of the kinds of placeholders, as the description of the API names them.
_SEGMENTS: Final = {
    "topic": ("domain", "tenant", "namespace", "topic"),
    "stored": ("tenant", "namespace", "topic"),
    "namespace": ("tenant", "namespace"),
}
DOMAINS: Final = ("persistent", "non-persistent")
# The kinds of placeholders that are topics.
TOPIC_KINDS: Final = ("topic", "stored")
_DOMAIN_END: Final = "://"
_PERSISTENT: Final = f"persistent{_DOMAIN_END}"
_BOOLEANS: Final = {"true": True, "false": False}
# The HTTP statuses of problems, as Pulsar's brokers answer them. Where they differ by call, `Route.statuses` has them.
_STATUSES: Final[Mapping[int, int]] = {
    ErrorCode.SERVICE_NOT_READY: 503,
    ErrorCode.CONSUMER_BUSY: 412,
    ErrorCode.PRODUCER_BUSY: 412,
    ErrorCode.TOPIC_NOT_FOUND: 404,
    ErrorCode.SUBSCRIPTION_NOT_FOUND: 404,
    ErrorCode.NOT_FOUND: 404,
    ErrorCode.ALREADY_EXISTS: 409,
    ErrorCode.INVALID_TOPIC_NAME: 412,
    ErrorCode.NOT_ALLOWED: 412,
    ErrorCode.INVALID_ARGUMENT: 412,
    ErrorCode.MESSAGE_TOO_BIG: 413,
    ErrorCode.TOO_MANY_REQUESTS: 429,
    ErrorCode.INCARNATION_CHANGED: 409,
    ErrorCode.STALE_EPOCH: 409,
    ErrorCode.TOPIC_TERMINATED: 409,
    ErrorCode.UNSUPPORTED: 405,
    ErrorCode.CONFLICT: 409,
    ErrorCode.INCOMPATIBLE_SCHEMA: 409,
}
# The statuses of problems about these, whatever their code is.
_STATUSES_ABOUT: Final[Mapping[str, int]] = {"bundle": 412}


class InvalidTarget(ValueError):
    """A path or query that can't be decoded, or does not fit the route's parameters."""


@dataclass(frozen=True, slots=True)
class HttpRequest:
    verb: str
    # Path and query, percent-encoded.
    target: str
    # None: there is no body.
    body: Any = None
    content_type: str = "application/json"


@dataclass(frozen=True, slots=True)
class Route:
    verb: str
    path: str
    # The query's parameters, as fields of the request.
    query: Mapping[str, Part | str] = field(default_factory=dict, kw_only=True)
    # Values of the query's parameters that are absent.
    query_defaults: Mapping[str, str] = field(default_factory=dict, kw_only=True)
    # Headers of the request that set text fields, e.g. {"X-Pulsar-ListenerName": "listener_name"}. The query
    # goes before them, and clients do not send them.
    headers: Mapping[str, str] = field(default_factory=dict, kw_only=True)
    # Fields that have this value on this route, e.g. {"all": True}.
    fixed: Mapping[str, Any] = field(default_factory=dict, kw_only=True)
    # Fields that have this value if the request has no body.
    without_body: Mapping[str, Any] = field(default_factory=dict, kw_only=True)
    # Fields that have this value if the query has none of the parameters. Clients have another route for it.
    without_query: Mapping[str, Any] = field(default_factory=dict, kw_only=True)
    # Fields that the broker sets to these values. Clients do not send them.
    implied: Mapping[str, Any] = field(default_factory=dict, kw_only=True)
    body: Part | None = field(default=None, kw_only=True)
    # The content type of a body that is a JSON object, if the route has another one for it.
    object_type: str = field(default="", kw_only=True)
    # The status of a whole number in the body that does not fit the field.
    out_of_range_status: int = field(default=400, kw_only=True)
    # Whether a request without a body is refused with 400.
    needs_body: bool = field(default=False, kw_only=True)
    # The maximum size of a body, if it is above `http_max_body_bytes`.
    max_body_bytes: int = field(default=0, kw_only=True)
    # The part of the response that is the body; None: 204 without a body.
    answer: Part | RawAnswer | None = field(default=None, kw_only=True)
    # The status if `answer` is None, or its value is absent.
    empty_status: int = field(default=204, kw_only=True)
    # Statuses of problems, by their codes (broker.proto), where they are not the usual ones.
    statuses: Mapping[int, int] = field(default_factory=dict, kw_only=True)
    # The same for problems that are about these (`Problem.about`).
    statuses_about: Mapping[str, int] = field(default_factory=dict, kw_only=True)
    # Clients use it for this call, and brokers serve the path with another one's.
    client_only: bool = field(default=False, kw_only=True)
    # What it does, if that is not the docstring of the call's method.
    summary: str = field(default="", kw_only=True)

    @property
    def placeholders(self) -> Sequence[tuple[str, str]]:
        """The placeholders' fields, with their kinds: topic, namespace or segment."""
        return _placeholders(self.path)

    @property
    def shown_names(self) -> Mapping[str, str]:
        """The names of the placeholders of one segment, as errors and the API's description show them, by their
        fields."""
        return _shown_names(self.path)

    @property
    def segments(self) -> list[str]:
        """The path's segments. Those of placeholders are in braces."""
        return split_path(self.path)

    @property
    def problem_statuses(self) -> Mapping[int, list[int]]:
        """The statuses of problems, with the codes that each stands for."""
        found: dict[int, list[int]] = {}
        for code in ErrorCode.values():
            if code:
                found.setdefault(self.find_status(code), []).append(code)
        for status in self.statuses_about.values():
            found.setdefault(status, [int(ErrorCode.INVALID_ARGUMENT)])
        return dict(sorted(found.items()))

    # ── the broker's side ──

    def make_request(
        self, request: Message, values: Sequence[str], query: str, body: Any, headers: Mapping[str, str] | None = None
    ) -> None:
        """Fill the request. `values`: the segments of the placeholders, decoded. `headers`: names in lower case.

        Raises InvalidTarget, InvalidJson.
        """
        left = list(values)
        for name, kind in self.placeholders:
            count = len(_SEGMENTS.get(kind, ("",)))
            taken, left = left[:count], left[count:]
            text = _join(taken, kind)
            owner, field_name = _locate(request, name)
            described = owner.DESCRIPTOR.fields_by_name[field_name]
            if described.is_repeated:
                getattr(owner, field_name).append(text)
            else:
                setattr(owner, field_name, _parse(described, text, self.shown_names.get(name, name)))
        _set_fields(request, {**self.fixed, **self.implied})
        for name, field_name in self.headers.items():
            if headers and headers.get(name.lower()):
                setattr(request, field_name, headers[name.lower()])
        if self.query:
            self._read_query(request, query)
        if body is None:
            if self.needs_body:
                raise InvalidJson("the body is missing")
            _set_fields(request, self.without_body)
        elif self.body is not None:
            self.body.fill(request, body, "the body")

    def _read_query(self, request: Message, query: str) -> None:
        try:
            pairs = parse_qsl(query, keep_blank_values=True, encoding="utf-8", errors="strict", max_num_fields=100)
        except ValueError as error:
            raise InvalidTarget(f"the query can't be decoded: {error}") from None
        # A parameter without a value is absent, unless that can be one of several.
        fields = request.DESCRIPTOR.fields_by_name
        pairs = [(name, text) for name, text in pairs if text or _is_repeated(fields, self.query.get(name))]
        given = {name for name, _ in pairs}
        pairs += [(name, text) for name, text in self.query_defaults.items() if name not in given]
        if self.query.keys().isdisjoint(name for name, _ in pairs):
            _set_fields(request, self.without_query)
        for name, text in pairs:
            part = self.query.get(name)
            if isinstance(part, str):
                described = fields[part]
                if described.is_repeated:
                    getattr(request, part).append(_parse(described, text, name))
                else:
                    setattr(request, part, _parse(described, text, name))
            elif part is not None:
                part.fill(request, text, name)

    def find_status(self, code: int, about: str = "") -> int:
        """Return the HTTP status of a problem with this code, about this."""
        status = self.statuses_about.get(about, _STATUSES_ABOUT.get(about))
        return self.statuses.get(code, _STATUSES.get(code, 500)) if status is None else status

    # ── the client's side ──

    def carries(self, request: Message) -> bool:
        """Whether the HTTP request can carry all fields of the request."""
        given = {one.name: value for one, value in request.ListFields()}
        if any(_split(request, name, kind) is None for name, kind in self.placeholders):
            return False
        # An absent field without presence has its default: what it is compared with can be that, e.g. {"force": False}.
        if any(not _is_equal(getattr(request, name), value) for name, value in self.fixed.items()):
            return False
        known = {name.partition(".")[0] for name, _ in self.placeholders} | set(self.fixed) | set(self.implied)
        for part in self.query.values():
            if isinstance(part, str):
                known.add(part)
            elif part.carries(request):
                known |= part.fields
            else:
                return False
        if self.without_query and not self._list_parameters(request):
            return False
        if self.body is not None:
            known |= self.body.fields
            if self.body.to_json(request) is None:
                if self.needs_body or any(
                    not _is_equal(getattr(request, name), value) for name, value in self.without_body.items()
                ):
                    return False
                # Without a body there are no other fields of it.
                known = known - self.body.fields | set(self.without_body)
            elif not self.body.carries(request):
                return False
        return set(given) <= known

    def write(self, request: Message) -> HttpRequest:
        """Return the HTTP request of the message, which the route carries."""

        def fill(match: re.Match[str]) -> str:
            parts = _split(request, match[1], _kind(match[1], match[2] or ""))
            assert parts is not None, "the route carries the message"
            return "/".join(quote(part, safe="") for part in parts)

        pairs = self._list_parameters(request)
        body = None if self.body is None else self.body.to_json(request)
        target = _PLACEHOLDER.sub(fill, self.path) + (f"?{urlencode(pairs)}" if pairs else "")
        if self.object_type and isinstance(body, Mapping):
            return HttpRequest(self.verb, target, body, self.object_type)
        return HttpRequest(self.verb, target, body)

    def _list_parameters(self, request: Message) -> list[tuple[str, str]]:
        """Return the names and values of the query's parameters."""
        given = {one.name for one, _ in request.ListFields()}
        pairs: list[tuple[str, str]] = []
        for name, part in self.query.items():
            if isinstance(part, str):
                value = _field_part(part).to_json(request) if part in given else None
            else:
                value = part.to_json(request)
            pairs += [
                (name, _query_text(one)) for one in (value if isinstance(value, list) else [value]) if one is not None
            ]
        return pairs

    def read_answer(self, response: Message, headers: Mapping[str, str], body: bytes) -> None:
        """Fill the response from the answer to a request that succeeded. Raises InvalidJson."""
        if isinstance(self.answer, RawAnswer):
            self.answer.fill(response, headers, body)
        elif self.answer is not None:
            value = parse_json(body)
            if value is not None:
                self.answer.fill(response, value, "the answer")


def _set_fields(request: Message, values: Mapping[str, Any]) -> None:
    for name, value in values.items():
        if isinstance(value, Message):
            getattr(request, name).CopyFrom(value)
        elif isinstance(value, list | tuple):
            getattr(request, name).extend(value)
        else:
            setattr(request, name, value)


def _join(segments: Sequence[str], kind: str) -> str:
    """Return the value of a placeholder's segments.

    A slash in a segment can't make another name of it: names have no slashes, so the handler refuses it."""
    if kind == "topic":
        return f"{segments[0]}{_DOMAIN_END}{'/'.join(segments[1:])}"
    return f"{_PERSISTENT if kind == 'stored' else ''}{'/'.join(segments)}"


def _split(request: Message, name: str, kind: str) -> list[str] | None:
    """Return the placeholder's segments; None: the field has no value that a path can carry."""
    if "." in name and not _has_only(request, name):
        return None
    owner, field_name = _locate(request, name)
    value = getattr(owner, field_name)
    if owner.DESCRIPTOR.fields_by_name[field_name].is_repeated:
        if len(value) != 1:
            return None
        value = value[0]
    if kind in TOPIC_KINDS and _DOMAIN_END not in value:
        # The short forms of a name: topic_name.py.
        value = f"{_PERSISTENT}{value if '/' in value else f'public/default/{value}'}"
    if kind == "stored":
        if not value.startswith(_PERSISTENT):
            return None
        value = value.removeprefix(_PERSISTENT)
    text = value.replace(_DOMAIN_END, "/", 1) if kind == "topic" else str(value)
    parts = text.split("/", len(_SEGMENTS[kind]) - 1) if kind in _SEGMENTS else [text]
    if "" in parts or len(parts) != len(_SEGMENTS.get(kind, parts)) or (kind == "topic" and parts[0] not in DOMAINS):
        return None
    return parts


def _is_repeated(fields: Any, part: Part | str | None) -> bool:
    return isinstance(part, str) and fields[part].is_repeated


def _is_equal(value: Any, other: Any) -> bool:
    return bool(value == (list(other) if isinstance(other, tuple) else other))


@functools.cache
def _field_part(name: str) -> Field:
    return Field(name)


@functools.cache
def _placeholders(path: str) -> tuple[tuple[str, str], ...]:
    return tuple((name, _kind(name, kind)) for name, kind, _ in _PLACEHOLDER.findall(path))


@functools.cache
def _shown_names(path: str) -> Mapping[str, str]:
    return {name: shown or name.rpartition(".")[2] for name, _, shown in _PLACEHOLDER.findall(path)}


def split_path(path: str) -> list[str]:
    """Return the segments of a route's path. Those of placeholders are in braces."""
    found: list[str] = []
    for segment in path.strip("/").split("/"):
        match = _PLACEHOLDER.fullmatch(segment)
        if match is None:
            found.append(segment)
        else:
            shown = match[3] or match[1].rpartition(".")[2]
            found += [f"{{{one}}}" for one in _SEGMENTS.get(_kind(match[1], match[2] or ""), (shown,))]
    return found


def _locate(message: Message, path: str) -> tuple[Any, str]:
    """Return the message that has the field, and the field's name."""
    owner: Any = message
    *parents, name = path.split(".")
    for parent in parents:
        owner = getattr(owner, parent)
    return owner, name


def _has_only(message: Message, path: str) -> bool:
    """Whether the field is set, and of nested messages no other one."""
    owner: Any = message
    first, *others = path.split(".")
    for name in others:
        owner, first = getattr(owner, first), name
        if [one.name for one, _ in owner.ListFields()] != [name]:
            return False
    return any(one.name == first for one, _ in owner.ListFields())


def _query_text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _kind(name: str, kind: str) -> str:
    return kind or (name if name in _SEGMENTS else "segment")


def _parse(described: Any, text: str, name: str) -> Any:
    """Return the value of a scalar field. Raises InvalidTarget."""
    if described.type == FieldDescriptor.TYPE_BYTES:
        try:
            return base64.b64decode(text, validate=True)
        except ValueError:
            raise _mismatch(name, text, "is not base64") from None
    if described.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        return text
    if described.cpp_type == FieldDescriptor.CPPTYPE_BOOL:
        if text.lower() not in _BOOLEANS:
            raise _mismatch(name, text, "is not true or false")
        return _BOOLEANS[text.lower()]
    if described.enum_type is not None:
        known = described.enum_type.values_by_name
        if text.upper() not in known:
            raise _mismatch(name, text, f"is none of {', '.join(known).lower()}")
        return known[text.upper()].number
    lowest, highest = _RANGES[described.cpp_type]
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(text) <= 20 and lowest <= int(text) <= highest):
        raise _mismatch(name, text, f"is not a whole number from {lowest} to {highest}")
    return int(text)


def _mismatch(name: str, text: str, what: str) -> InvalidTarget:
    return InvalidTarget(f"{name}: {format_value(text)} {what}")


_RANGES: Final = {
    FieldDescriptor.CPPTYPE_INT32: (-(2**31), 2**31 - 1),
    FieldDescriptor.CPPTYPE_INT64: (-(2**63), 2**63 - 1),
    FieldDescriptor.CPPTYPE_UINT32: (0, 2**32 - 1),
    FieldDescriptor.CPPTYPE_UINT64: (0, 2**64 - 1),
}
