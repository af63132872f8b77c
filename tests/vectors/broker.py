"""Plays a Pulsar broker, just enough for producers, and writes down what they send.

It takes every topic and producer, gives each send its receipt at once, and keeps nothing. Frames of the public protocol
are `total size (4) · command size (4) · command`, and after the command of a SEND comes the entry, as it is stored.
"""

from __future__ import annotations

import socket
import socketserver
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from tests.vectors import protobuf
from tests.vectors.protobuf import Value

# Command types, which are also the numbers of the commands' fields in the command that wraps them.
CONNECT, CONNECTED = 2, 3
PRODUCER, SEND, SEND_RECEIPT = 5, 6, 7
SUCCESS, CLOSE_PRODUCER, PRODUCER_SUCCESS = 13, 15, 17
PING, PONG = 18, 19
PARTITIONED_METADATA, PARTITIONED_METADATA_RESPONSE = 21, 22
LOOKUP, LOOKUP_RESPONSE = 23, 24

PROTOCOL_VERSION = 19
PRODUCER_NAME = b"recorded"
# What a topic's first schema has, for producers that bring one.
SCHEMA_VERSION = (0).to_bytes(8, "big")


@dataclass(frozen=True)
class Sent:
    """One SEND: the topic (a partition's own name), the command's fields, and the entry."""

    topic: str
    sequence_id: int
    num_messages: int
    highest_sequence_id: int
    is_chunk: bool
    entry: bytes


@dataclass
class Recorder:
    """A broker's settings for the capture, and the frames that it got. One lock for all connections' threads."""

    max_message_bytes: int
    partitions: Mapping[str, int]
    url: str = ""
    _sent: list[Sent] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def record(self, sent: Sent) -> int:
        """Store it; return its index."""
        with self._lock:
            self._sent.append(sent)
            return len(self._sent) - 1

    def take(self) -> list[Sent]:
        """Return all that was sent since the last call. A client's `flush` has returned: then it is all."""
        with self._lock:
            taken, self._sent = self._sent, []
            return taken


@contextmanager
def serving(max_message_bytes: int, partitions: Mapping[str, int] | None = None) -> Iterator[Recorder]:
    """A broker on a port of its own. `partitions`: how many the topics have that have any, by full name."""
    recorder = Recorder(max_message_bytes, partitions or {})

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            _Connection(self.request, recorder).run()

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        recorder.url = f"pulsar://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield recorder
        finally:
            server.shutdown()
            thread.join()


class _Connection:
    def __init__(self, peer: socket.socket, recorder: Recorder) -> None:
        self._peer = peer
        self._recorder = recorder
        self._topics: dict[int, str] = {}
        self._answers: dict[int, Callable[[dict[int, Value], bytes], bytes]] = {
            CONNECT: self._connect,
            PARTITIONED_METADATA: self._partitioned_metadata,
            LOOKUP: self._lookup,
            PRODUCER: self._producer,
            SEND: self._send,
            CLOSE_PRODUCER: lambda command, _: _command(SUCCESS, {1: protobuf.number(command, 2)}),
            PING: lambda command, _: _command(PONG, {}),
            PONG: lambda command, _: b"",
        }

    def run(self) -> None:
        with self._peer.makefile("rb") as stream:
            while len(head := stream.read(4)) == 4:
                frame = stream.read(int.from_bytes(head, "big"))
                size = int.from_bytes(frame[:4], "big")
                command = protobuf.fields(frame[4 : 4 + size])
                kind = protobuf.number(command, 1)
                inner = command.get(kind, b"")
                assert isinstance(inner, bytes)
                self._peer.sendall(self._answers[kind](protobuf.fields(inner), frame[4 + size :]))

    def _connect(self, command: dict[int, Value], entry: bytes) -> bytes:
        limit = self._recorder.max_message_bytes
        return _command(CONNECTED, {1: b"recorder", 2: PROTOCOL_VERSION, 3: limit})

    def _partitioned_metadata(self, command: dict[int, Value], entry: bytes) -> bytes:
        partitions = self._recorder.partitions.get(protobuf.text(command, 1), 0)
        return _command(PARTITIONED_METADATA_RESPONSE, {1: partitions, 2: protobuf.number(command, 2), 3: 0})

    def _lookup(self, command: dict[int, Value], entry: bytes) -> bytes:
        url = self._recorder.url.encode()
        return _command(LOOKUP_RESPONSE, {1: url, 3: 1, 4: protobuf.number(command, 2), 5: 1})

    def _producer(self, command: dict[int, Value], entry: bytes) -> bytes:
        self._topics[protobuf.number(command, 2)] = protobuf.text(command, 1)
        version = SCHEMA_VERSION if 7 in command else b""
        request_id = protobuf.number(command, 3)
        return _command(PRODUCER_SUCCESS, {1: request_id, 2: PRODUCER_NAME, 3: -1, 4: version, 6: 1})

    def _send(self, command: dict[int, Value], entry: bytes) -> bytes:
        producer_id, sequence_id = protobuf.number(command, 1), protobuf.number(command, 2)
        highest = protobuf.number(command, 6)
        sent = Sent(
            topic=self._topics[producer_id],
            sequence_id=sequence_id,
            num_messages=protobuf.number(command, 3, 1),
            highest_sequence_id=highest,
            is_chunk=bool(protobuf.number(command, 7)),
            entry=entry,
        )
        message_id = protobuf.message({1: 1, 2: self._recorder.record(sent)})
        return _command(SEND_RECEIPT, {1: producer_id, 2: sequence_id, 3: message_id, 4: highest})


def _command(kind: int, fields: dict[int, Value]) -> bytes:
    command = protobuf.message({1: kind, kind: protobuf.message(fields)})
    return (len(command) + 4).to_bytes(4, "big") + len(command).to_bytes(4, "big") + command
