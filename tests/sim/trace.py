"""The trace of a run, a line for each event: virtual time, process, event. It costs little when nobody listens.

Tracing draws nothing at random and changes nothing, so a run with its trace is the run without it.
"""

from __future__ import annotations

from collections.abc import Callable
from zlib import crc32

from google.protobuf import text_format
from google.protobuf.message import Message

from magnetar_protos import broker_pb2, frame_pb2, ledger_pb2
from tests.sim.loop import SimulatedLoop
from tests.sim.process import Process

__all__ = ["Trace"]

_REQUESTS: dict[str, tuple[type[Message], type[Message]]] = {
    "read": (ledger_pb2.ReadRequest, ledger_pb2.ReadAnswer),
    "fence": (ledger_pb2.FenceRequest, ledger_pb2.FenceAnswer),
    "last_add_confirmed": (ledger_pb2.LastAddConfirmedRequest, ledger_pb2.LastAddConfirmedAnswer),
    "confirm": (ledger_pb2.ConfirmRequest, ledger_pb2.ConfirmAnswer),
    "inventory": (ledger_pb2.InventoryRequest, ledger_pb2.InventoryAnswer),
    "lookup": (broker_pb2.LookupRequest, broker_pb2.LookupAnswer),
    "partitions": (broker_pb2.PartitionsRequest, broker_pb2.PartitionsAnswer),
    "last_message": (broker_pb2.LastMessageRequest, broker_pb2.LastMessageAnswer),
}
# Of streams: what the client sends, and what the server does.
_MESSAGES: dict[str, tuple[type[Message], type[Message]]] = {
    "produce": (broker_pb2.ProduceRequest, broker_pb2.ProduceAnswer),
    "consume": (broker_pb2.ConsumeRequest, broker_pb2.ConsumeAnswer),
}


class Trace:
    """`write` takes each line; without it nothing is made up. It is a `Tap` of the network, too."""

    def __init__(self, loop: SimulatedLoop, write: Callable[[str], object] | None = None) -> None:
        self._loop = loop
        self._write = write
        self.on = write is not None

    def line(self, who: str, what: str) -> None:
        if self._write is not None:
            self._write(f"{self._loop.elapsed_s:10.4f} {who:<10} {what}")

    def request_sent(self, source: Process, target: Process, method: str, request: bytes) -> None:
        self.line(source.name, f"→ {target.name} {method} {_shown(method, request, 0)}")

    def request_arrived(self, source: Process, target: Process, method: str, request: bytes) -> None:
        self.line(target.name, f"has {method} of {source.name} {_shown(method, request, 0)}")

    def answer_sent(self, source: Process, target: Process, method: str, request: bytes, answer: bytes) -> None:
        self.line(source.name, f"⇒ {target.name} {method} {_shown(method, answer, 1)}")

    def answer_arrived(self, source: Process, target: Process, method: str, request: bytes, answer: bytes) -> None:
        self.line(target.name, f"has the answer of {source.name} to {method} {_shown(method, answer, 1)}")

    def message_sent(self, source: Process, target: Process, method: str, message: bytes, *, served: bool) -> None:
        self.line(source.name, f"→ {target.name} {method} {_shown_message(method, message, served=served)}")

    def message_arrived(self, source: Process, target: Process, method: str, message: bytes, *, served: bool) -> None:
        self.line(target.name, f"has {method} of {source.name} {_shown_message(method, message, served=served)}")


def _shown(method: str, message: bytes, which: int) -> str:
    kinds = _REQUESTS.get(method)
    if kinds is None:
        return f"{len(message)} bytes"
    decoded = kinds[which].FromString(message)
    shown = [
        f"{field.name}={_value(value)}"
        for field, value in decoded.ListFields()
        if field.name not in ("master_key", "max_bytes")
    ]
    return " ".join(shown)


def _value(value: object) -> str:
    if isinstance(value, bytes):
        return f"{crc32(value):08x}"
    if isinstance(value, (int, str, bool)):
        return str(value)
    if isinstance(value, Message):
        return _on_one_line(value)
    items = list(value)  # type: ignore[call-overload]
    if items and isinstance(items[0], bytes):
        return f"{len(items)}"
    return "[" + ", ".join(str(item).replace("\n", " ").strip() for item in items) + "]"


def _shown_message(method: str, message: bytes, *, served: bool) -> str:
    if method == "add":
        return _shown_adds(message, served=served)
    kinds = _MESSAGES.get(method)
    if kinds is None:
        return f"{len(message)} bytes"
    parts = []
    for field, value in kinds[served].FromString(message).ListFields():
        shown = _shown_runs(value) if field.name == "frame" else ", ".join(_on_one_line(one) for one in value)
        parts.append(f"{field.name}: {shown}")
    return "; ".join(parts)


def _shown_runs(frame: frame_pb2.Frame) -> str:
    return " ".join(f"{run.channel}:{run.first}+{run.count}" for run in frame.runs)


def _on_one_line(message: Message) -> str:
    return "(" + text_format.MessageToString(message, as_one_line=True).strip() + ")"


def _shown_adds(message: bytes, *, served: bool) -> str:
    if served:
        answers = ledger_pb2.AddAnswers.FromString(message).answers
        return " ".join(
            f"{answer.ledger_id}:{answer.first_entry_id}+{answer.count}={ledger_pb2.Status.Name(answer.status)}"
            for answer in answers
        )
    request = ledger_pb2.AddRequest.FromString(message)
    return " ".join(
        f"{frame_run.channel}:{frame_run.first}+{frame_run.count}{' recovery' if run.recovery else ''}"
        for frame_run, run in zip(request.frame.runs, request.runs, strict=True)
    )
