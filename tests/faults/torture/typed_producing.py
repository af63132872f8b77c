"""Typed producers of the torture, whose schema evolves, and offers of definitions, some of which must be refused.

They record each offer of a definition, and its answer. An answer other than the refusal as incompatible leaves open
whether the definition was registered.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from random import Random
from typing import Any, Final

import pulsar
import pulsar.schema
from pydantic import BaseModel
from pydantic_core import to_jsonable_python

import magnetar
from magnetar.admin import Admin
from magnetar.exceptions import IncompatibleSchema
from tests.faults.checker.recorder import Recorder
from tests.faults.torture import evolution
from tests.faults.torture.clients import CLIENT_ERRORS, Clients
from tests.faults.torture.evolution import Definition
from tests.faults.torture.messages import Outgoing, make_typed_message
from tests.faults.torture.producing import Load, ProducerLog, error_text
from tests.faults.torture.stock_producing import StockProducerLog

__all__ = ["TypedProducerLog", "TypedStockProducerLog", "announce_offer", "offerer", "offering"]

_OFFER_EVERY_S: Final = 2.0


class TypedProducerLog(ProducerLog):
    """A producer with one definition, which ends when the next one is due."""

    renew_s = 6.0

    def __init__(self, clients: Clients, topic: str, name: str, load: Load, chance: Random) -> None:
        self.definition, self._current_until = evolution.current(clients.seed, chance)
        self.more_fields = {**self.more_fields, "definition": self.definition.name}
        announce_offer(clients.recorder, topic, self.definition)
        super().__init__(clients, topic, name, load, chance)

    @property
    def options(self) -> Mapping[str, Any]:
        return {**super().options, "schema": self.definition.schema}

    @property
    def goes_on(self) -> bool:
        return super().goes_on and time.monotonic() < self._current_until

    def make(self, number: int) -> Outgoing:
        value, payload = self.encode(self.definition.make_value(self.chance))
        return make_typed_message(self.name, number, value, payload, self.load.key(self.chance))

    def encode(self, value: BaseModel) -> tuple[Any, bytes]:
        """Return what is passed to the producer, and its payload."""
        return value, self.definition.schema.encode(value)

    def fields_of(self, messages: Sequence[Outgoing]) -> dict[str, Any]:
        return {"values": [to_jsonable_python(one.value) for one in messages]}

    @contextlib.contextmanager
    def opening(self) -> Iterator[None]:
        with offering(self.clients.recorder, self.topic, self.definition):
            yield


class TypedStockProducerLog(TypedProducerLog, StockProducerLog):
    """The same of Pulsar's own library, with dicts as values."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        definition = json.loads(self.definition.schema.schema_info().definition)
        self._schema = pulsar.schema.AvroSchema(None, schema_definition=definition)

    @property
    def options(self) -> Mapping[str, Any]:
        return {**super().options, "schema": self._schema}

    def encode(self, value: BaseModel) -> tuple[Any, bytes]:
        plain = value.model_dump()
        return plain, self._schema.encode(plain)


def offerer(topic: str) -> Callable[[Clients], None]:
    """Offer definitions as an administrator, and incompatible ones also by producers, which must not open."""

    def offer(clients: Clients) -> None:
        chance = clients.chance(f"{topic} offers")
        with Admin(clients.url) as admin:
            while not clients.stopping.wait(_OFFER_EVERY_S * (0.5 + chance.random())):
                with contextlib.suppress(magnetar.MagnetarException):
                    _offer_one(clients, admin, topic, chance)

    return offer


def _offer_one(clients: Clients, admin: Admin, topic: str, chance: Random) -> None:
    compatible = not chance.randrange(3)
    definition = evolution.current(clients.seed, chance)[0] if compatible else evolution.incompatible(chance)
    announce_offer(clients.recorder, topic, definition)
    with offering(clients.recorder, topic, definition) as answer:
        if compatible or chance.random() < 0.5:
            answer["version"] = admin.schemas.upload(topic, definition.schema)
        else:
            clients.client.create_producer(topic, schema=definition.schema).close()


def announce_offer(recorder: Recorder, topic: str, definition: Definition) -> None:
    fields = {"definition": definition.name, "fields": definition.fields, "compatible": definition.compatible}
    recorder.say("offering", topic=topic, **fields)


@contextlib.contextmanager
def offering(recorder: Recorder, topic: str, definition: Definition) -> Iterator[dict[str, int]]:
    """Record the answer to the offer that is made within the context. The context may add the `version`."""

    answer: dict[str, int] = {}

    def record_answer(result: str, why: str = "") -> None:
        recorder.say("offered", topic=topic, definition=definition.name, result=result, why=why, **answer)

    try:
        yield answer
    except (IncompatibleSchema, pulsar.IncompatibleSchema) as error:
        record_answer("refused", error_text(error))
        raise
    except CLIENT_ERRORS as error:
        record_answer("unknown", error_text(error))
        raise
    record_answer("registered")
