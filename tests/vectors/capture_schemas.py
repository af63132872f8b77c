"""Records a real Pulsar's verdicts on schemas: `python -m tests.vectors.capture_schemas [HTTP_URL BINARY_ADDRESS]`.

Without addresses, a Pulsar is started. `schema_verdicts.json` then has:

    evolutions      by case: the strategies under which a producer and a consumer may use the schema
    definitions     by case: the verdict on the schema as the first one of a topic
    pairs           by case: the verdict on the second schema, under ALWAYS_COMPATIBLE

A verdict is "ok", or "same": it got the version of the first schema; "refused", or "failed": the broker answered with
an error of its own.

Producers' schemas are sent with GET_OR_CREATE_SCHEMA and consumers' with SUBSCRIBE, commands of the binary protocol.
"""

from __future__ import annotations

import json
import socket
import struct
import sys
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from magnetar_protos.pulsar_pb2 import BaseCommand, Schema, ServerError
from magnetar_protos.schema_pb2 import SchemaType
from tests import peers
from tests.http_client import send_request
from tests.vectors.schema_cases import DEFINITIONS, EVOLUTIONS, PAIRS, STRATEGIES, CaseSchema

__all__ = ["RECORD", "capture_verdicts"]

RECORD: Final = Path(__file__).with_name("schema_verdicts.json")
_TENANT: Final = "public"
# Requests that are sent before their answers are read.
_WINDOW: Final = 32
_SHARED: Final = 1


class PulsarWire:
    """A connection that sends commands and reads their answers."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=120)
        self._requests = 0
        self._send(_command("CONNECT", "connect", client_version="capture", protocol_version=21))
        self._read()

    def close(self) -> None:
        self._socket.close()

    def register(self, schemas: Iterable[tuple[str, CaseSchema]]) -> list[tuple[str, bytes]]:
        """Register a schema for each topic. Return the verdicts and the versions."""
        answers = self._request(
            _command(
                "GET_OR_CREATE_SCHEMA",
                "get_or_create_schema",
                topic=topic,
                schema=_encode(schema),
            )
            for topic, schema in schemas
        )
        found = []
        for answer in answers:
            response = answer.get_or_create_schema_response
            if response.HasField("error_code"):
                found.append((_verdict(response.error_code), b""))
            else:
                found.append(("ok", response.schema_version))
        return found

    def subscribe(self, schemas: Iterable[tuple[str, CaseSchema]]) -> list[str]:
        """Open and close a consumer with each schema. Return the verdicts."""
        answers = self._request(
            _command(
                "SUBSCRIBE",
                "subscribe",
                topic=topic,
                subscription="capture",
                sub_type=_SHARED,
                consumer_id=number,
                durable=False,
                schema=_encode(schema),
            )
            for number, (topic, schema) in enumerate(schemas)
        )
        return [_verdict(answer.error.error) if answer.HasField("error") else "ok" for answer in answers]

    def _request(self, commands: Iterable[BaseCommand]) -> list[BaseCommand]:
        """Send commands, several at a time, and return their answers in the order of the commands."""
        waiting: dict[int, int] = {}
        answers: list[BaseCommand] = []
        for command in commands:
            part = getattr(command, BaseCommand.Type.Name(command.type).lower())
            self._requests += 1
            part.request_id = self._requests
            waiting[self._requests] = len(answers)
            answers.append(command)
            self._send(command)
            if len(waiting) >= _WINDOW:
                self._read_answer(waiting, answers)
        while waiting:
            self._read_answer(waiting, answers)
        return answers

    def _read_answer(self, waiting: dict[int, int], answers: list[BaseCommand]) -> None:
        answer = self._read()
        part = next((value for field, value in answer.ListFields() if field.name != "type"), None)
        request_id = getattr(part, "request_id", None)
        if request_id in waiting:
            answers[waiting.pop(request_id)] = answer

    def _send(self, command: BaseCommand) -> None:
        encoded = command.SerializeToString()
        self._socket.sendall(struct.pack(">II", len(encoded) + 4, len(encoded)) + encoded)

    def _read(self) -> BaseCommand:
        while True:
            (size,) = struct.unpack(">I", self._read_bytes(4))
            frame = self._read_bytes(size)
            (length,) = struct.unpack_from(">I", frame)
            command = BaseCommand.FromString(frame[4 : 4 + length])
            if command.type != BaseCommand.PING:
                return command
            self._send(_command("PONG", "pong"))

    def _read_bytes(self, size: int) -> bytes:
        parts = b""
        while len(parts) < size:
            read = self._socket.recv(size - len(parts))
            if not read:
                raise ConnectionError("Pulsar closed the connection")
            parts += read
        return parts


def _command(name: str, part: str, **fields: Any) -> BaseCommand:
    command = BaseCommand(type=name)
    getattr(command, part).SetInParent()
    for field, value in fields.items():
        if isinstance(value, Schema):
            getattr(command, part).schema.CopyFrom(value)
        else:
            setattr(getattr(command, part), field, value)
    return command


def _encode(schema: CaseSchema) -> Schema:
    encoded = Schema(name="capture", schema_data=schema.definition, type=SchemaType.Value(schema.type))
    for key, value in schema.properties.items():
        encoded.properties.add(key=key, value=value)
    return encoded


def _verdict(error: int) -> str:
    return "refused" if error == ServerError.INCOMPATIBLE_SCHEMA else "failed"


class _Namespace:
    """A namespace with one topic per case, that is deleted at the end."""

    def __init__(self, http: str, wire: PulsarWire, name: str) -> None:
        self._http = http
        self._wire = wire
        self._name = f"{_TENANT}/{name}"
        self._topics: set[str] = set()
        self._call("PUT", f"namespaces/{self._name}", {"bundles": {"numBundles": 1}})
        self.set_strategy("ALWAYS_COMPATIBLE")

    def topic(self, number: int) -> str:
        topic = f"persistent://{self._name}/case-{number}"
        if topic not in self._topics:
            self._topics.add(topic)
            self._call("PUT", topic.replace("://", "/"))
        return topic

    def set_strategy(self, strategy: str) -> None:
        """Set it for topics that are loaded from now on, and load the namespace again."""
        path = f"namespaces/{self._name}"
        self._call("PUT", f"{path}/schemaCompatibilityStrategy", strategy)
        found = self._call("GET", f"{path}/schemaCompatibilityStrategy")
        if found != strategy:
            raise RuntimeError(f"the strategy is {found!r}, not {strategy!r}")
        self._call("PUT", f"{path}/unload")
        self._call("GET", f"../../lookup/v2/topic/persistent/{self._name}/case-0")

    def delete(self) -> None:
        for topic in sorted(self._topics):
            self._call("DELETE", f"{topic.replace('://', '/')}?force=true&deleteSchema=true", missing_ok=True)
        self._call("DELETE", f"namespaces/{self._name}")

    def _call(self, method: str, path: str, body: object = None, *, missing_ok: bool = False) -> Any:
        path = path.removeprefix("../../") if path.startswith("../../") else f"admin/v2/{path}"
        encoded = None if body is None else json.dumps(body).encode()
        status, answer = send_request(self._http, f"/{path}", method, encoded)
        if status >= 300 and not (missing_ok and status == 404):
            raise RuntimeError(f"{method} {path}: {status} {answer!r:.500}")
        return json.loads(answer) if answer else None


@contextmanager
def _namespace(http: str, wire: PulsarWire, name: str) -> Iterator[_Namespace]:
    namespace = _Namespace(http, wire, name)
    try:
        yield namespace
    finally:
        namespace.delete()


def capture_verdicts(http: str, binary: str, prefix: str = "schemas") -> dict[str, Any]:
    """Return what the record has, from the Pulsar at these addresses."""
    with closing(PulsarWire(binary)) as wire:
        with _namespace(http, wire, f"{prefix}-definitions") as namespace:
            definitions = _capture_definitions(namespace, wire)
            pairs = _capture_pairs(namespace, wire)
        evolutions: dict[str, dict[str, list[str]]] = {name: {"producer": [], "consumer": []} for name in EVOLUTIONS}
        for strategy in STRATEGIES:
            with _namespace(http, wire, f"{prefix}-{strategy.lower()}") as namespace:
                for name, client in _capture_strategy(namespace, wire, strategy):
                    evolutions[name][client].append(strategy)
    return {"evolutions": evolutions, "definitions": definitions, "pairs": pairs}


def _capture_definitions(namespace: _Namespace, wire: PulsarWire) -> dict[str, str]:
    answers = wire.register((namespace.topic(number), schema) for number, schema in enumerate(DEFINITIONS.values()))
    return {name: verdict for name, (verdict, _) in zip(DEFINITIONS, answers, strict=True)}


def _capture_pairs(namespace: _Namespace, wire: PulsarWire) -> dict[str, str]:
    begin = len(DEFINITIONS)
    firsts = wire.register((namespace.topic(begin + n), first) for n, (first, _) in enumerate(PAIRS.values()))
    seconds = wire.register((namespace.topic(begin + n), second) for n, (_, second) in enumerate(PAIRS.values()))
    found = {}
    for name, (verdict, version), (second_verdict, second_version) in zip(PAIRS, firsts, seconds, strict=True):
        found[name] = (
            "same" if version and version == second_version else verdict if verdict != "ok" else second_verdict
        )
    return found


def _capture_strategy(namespace: _Namespace, wire: PulsarWire, strategy: str) -> Iterator[tuple[str, str]]:
    """Yield the cases, and the clients that may use the new schema."""
    cases = list(EVOLUTIONS.values())
    topics = [namespace.topic(number) for number in range(len(cases))]
    for depth in range(max(len(case.earlier) for case in cases)):
        wire.register(
            (topic, case.earlier[depth]) for topic, case in zip(topics, cases, strict=True) if depth < len(case.earlier)
        )
    namespace.set_strategy(strategy)
    new = [(topic, case.new) for topic, case in zip(topics, cases, strict=True)]
    # Consumers don't add a version, because each topic has one.
    consumers = wire.subscribe(new)
    producers = [verdict for verdict, _ in wire.register(new)]
    for client, verdicts in (("producer", producers), ("consumer", consumers)):
        yield from ((name, client) for name, verdict in zip(EVOLUTIONS, verdicts, strict=True) if verdict == "ok")


def _write(verdicts: dict[str, Any]) -> None:
    parts = []
    for part, cases in verdicts.items():
        lines = (f"  {json.dumps(name)}: {json.dumps(verdict)}" for name, verdict in cases.items())
        parts.append(f" {json.dumps(part)}: {{\n" + ",\n".join(lines) + "\n }")
    RECORD.write_text("{\n" + ",\n".join(parts) + "\n}\n")


if __name__ == "__main__":
    if sys.argv[1:]:
        _write(capture_verdicts(*sys.argv[1:]))
    else:
        with peers.running("pulsar") as url:
            _write(capture_verdicts(urlsplit(peers.PULSAR_HTTP_URL).netloc, urlsplit(url).netloc))
