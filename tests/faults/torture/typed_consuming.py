"""Typed consumers of the torture, each with a definition of its own or with none, and a watcher of the registry.

They record the value of every message that they get, before it is acknowledged. If a value can't be decoded at present,
the consumer is closed, and its messages are redelivered to the next one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from pydantic_core import to_jsonable_python

import magnetar
from magnetar.admin import Admin
from magnetar.exceptions import DecodeError, SchemaUnavailable
from tests.faults.torture import evolution
from tests.faults.torture.clients import Clients
from tests.faults.torture.consuming import ConsumerLog
from tests.faults.torture.evolution import Definition
from tests.faults.torture.messages import read_message
from tests.faults.torture.producing import AGAIN_S, error_text
from tests.faults.torture.typed_producing import announce_offer

__all__ = ["TypedConsumerLog", "typed_log", "watch_registry"]

_LIST_EVERY_S: Final = 3.0
_LAST_LIST_S: Final = 60.0


class TypedConsumerLog(ConsumerLog):
    """`reader` is the definition by which it reads; None: that of each message."""

    def __init__(
        self, clients: Clients, topic: str, subscription: str, worker: str, *, reader: Definition | None
    ) -> None:
        super().__init__(clients, topic, subscription, worker)
        if reader is not None:
            # A consumer, too, may add a version to a topic that has none yet.
            announce_offer(clients.recorder, topic, reader)
            self.more_fields = {"definition": reader.name}

    def got(self, messages: Sequence[Any], since: float) -> None:
        super().got(messages, since)
        items = []
        for message in messages:
            read = read_message(message)
            try:
                version = int.from_bytes(message.schema_version())
                items.append([read.producer, read.number, version, _as_json(message.value())])
            except DecodeError as error:
                temporary = isinstance(error, SchemaUnavailable)
                self._say("undecoded", items=[[read.producer, read.number]], temporary=temporary, why=error_text(error))
                if temporary:
                    raise
        if items:
            self._say("decoded", items=items)


def typed_log(reader: Definition | None) -> Callable[[Clients, str, str, str], ConsumerLog]:
    def make(clients: Clients, topic: str, subscription: str, worker: str) -> ConsumerLog:
        return TypedConsumerLog(clients, topic, subscription, worker, reader=reader)

    return make


def watch_registry(topic: str) -> Callable[[Clients], None]:
    """List all versions now and then, and at the end, when no producer is left."""

    def watch(clients: Clients) -> None:
        with Admin(clients.url) as admin:
            while not clients.quitting.wait(_LIST_EVERY_S):
                _list_versions(clients, admin, topic)
            until = time.monotonic() + _LAST_LIST_S
            while not _list_versions(clients, admin, topic) and time.monotonic() < until:
                time.sleep(AGAIN_S)

    return watch


def _list_versions(clients: Clients, admin: Admin, topic: str) -> bool:
    since = time.monotonic()
    try:
        listed = admin.schemas.list(topic)
    except magnetar.MagnetarException:  # the next one tries again
        return False
    versions = [[one.version, evolution.name_of(one.schema.definition)] for one in listed]
    clients.recorder.say("registry", since=since, topic=topic, versions=versions)
    return True


def _as_json(value: Any) -> dict[str, Any]:
    """A value that is no record is never what was sent, and is recorded all the same."""
    found = to_jsonable_python(value, fallback=repr, bytes_mode="base64")
    return found if isinstance(found, dict) else {"no record": found}
