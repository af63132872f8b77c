"""The typed workload of the torture records what the checker needs, and its definitions are what it claims."""

from __future__ import annotations

import random
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from magnetar.exceptions import BrokerFailed, IncompatibleSchema, SchemaUnavailable
from magnetar_broker.errors import BrokerError
from magnetar_broker.schemas.compatibility import check_compatible
from magnetar_protos.catalog_pb2 import SchemaCompatibility
from magnetar_protos.schema_pb2 import Schema
from tests.faults.checker import Verdict, judge
from tests.faults.checker.recorder import Recorder
from tests.faults.torture import evolution
from tests.faults.torture.clients import Clients
from tests.faults.torture.consuming import ConsumerLog
from tests.faults.torture.evolution import NEWER, OLDER, Definition
from tests.faults.torture.messages import Outgoing
from tests.faults.torture.producing import Load
from tests.faults.torture.typed_consuming import TypedConsumerLog
from tests.faults.torture.typed_producing import TypedProducerLog, TypedStockProducerLog, announce_offer, offering

TOPIC = "typed"


def _some_definitions() -> list[Definition]:
    return [OLDER, NEWER, *(evolution.of_generation("a seed", number) for number in range(8))]


def _wire(definition: Definition) -> Schema:
    return definition.schema.schema_info().to_message()


def test_definitions_are_compatible_with_one_another() -> None:
    for one, other in product(_some_definitions(), repeat=2):
        check_compatible(_wire(one), [(0, _wire(other))], SchemaCompatibility.FULL)
    assert len({one.name for one in _some_definitions()}) == len(_some_definitions())


def test_incompatible_definitions_are_refused_after_every_other() -> None:
    chance = random.Random(1)
    for known in _some_definitions():
        wrong = [evolution.incompatible(chance) for _ in range(4)]
        for one in wrong:
            with pytest.raises(BrokerError):
                check_compatible(_wire(one), [(0, _wire(known))], SchemaCompatibility.FULL)
        assert len({one.name for one in wrong}) == len(wrong)


class _Received:
    """A message that was sent with one definition, and is decoded with another."""

    def __init__(self, sent: Outgoing, version: int, value: Any) -> None:
        self._sent, self._version, self._value = sent, version, value

    def value(self) -> Any:
        if isinstance(self._value, Exception):
            raise self._value
        return self._value

    def schema_version(self) -> bytes:
        return self._version.to_bytes(8)

    def data(self) -> bytes:
        return self._sent.payload or b""

    def has_null_value(self) -> bool:
        return False

    def has_key(self) -> bool:
        return self._sent.key is not None

    def partition_key(self) -> str:
        return self._sent.key or ""

    def properties(self) -> dict[str, str]:
        return dict(self._sent.properties or {})

    def event_timestamp(self) -> int:
        return self._sent.event_ms

    def topic_name(self) -> str:
        return f"persistent://public/default/{TOPIC}"

    def message_id(self) -> Any:
        ids = {"ledger_id": 1, "entry_id": self._sent.number, "batch_index": -1, "partition": -1}
        return SimpleNamespace(**{name: lambda number=number: number for name, number in ids.items()})

    def redelivery_count(self) -> int:
        return 0


class _Run:
    """One producer and consumers of its messages, without a broker."""

    def __init__(self, folder: Path, make_log: type[TypedProducerLog] = TypedProducerLog) -> None:
        self.folder = folder
        self._consumers = 0
        recorder = Recorder(folder, "w")
        self.clients = Clients("", "", None, folder, "a seed", "w", recorder)
        recorder.say("topic", topic=TOPIC, partitions=0, order="producer", deduplicated=False)
        recorder.say("subscription", subscription=f"{TOPIC}.s", topic=TOPIC, type="Shared", durable=True)
        self.log = make_log(self.clients, TOPIC, "typed.p", Load(burst=40, keys=2), random.Random(1))
        with self.log.opening():
            self.sent = self.log.burst()
        while len(self.sent) < 20:
            self.sent += self.log.burst()

    def consume(self, reader: Definition | None, values: list[Any]) -> None:
        self._consumers += 1
        log: ConsumerLog = TypedConsumerLog(self.clients, TOPIC, "s", f"w{self._consumers}", reader=reader)
        with log.opening():
            log.opened(None)
            log.got([_Received(sent, 0, value) for sent, value in zip(self.sent, values, strict=True)], 0.0)

    def judged(self) -> Verdict:
        self.clients.recorder.close()
        return judge(self.folder, times=False)


def _read(run: _Run, reader: Definition) -> list[Any]:
    """What the SDK decodes."""
    decode = reader.schema.make_decoder(run.log.definition.schema.schema_info())
    return decode([one.payload or b"" for one in run.sent], None)


def test_values_are_recorded_as_they_are_decoded(tmp_path: Path) -> None:
    run = _Run(tmp_path)
    run.consume(OLDER, _read(run, OLDER))
    run.consume(NEWER, _read(run, NEWER))
    run.consume(None, [one.value for one in run.sent])
    run.consume(None, [one.value.model_dump() for one in run.sent])
    verdict = run.judged()
    assert verdict.clean, str(verdict)
    assert verdict.figures["messages decoded"] == 4 * len(run.sent) > 40
    assert verdict.figures["definitions registered"] == 1


def test_values_of_the_stock_library_are_recorded(tmp_path: Path) -> None:
    run = _Run(tmp_path, TypedStockProducerLog)
    run.consume(NEWER, _read(run, NEWER))
    run.consume(None, [one.value for one in run.sent])
    verdict = run.judged()
    assert verdict.clean, str(verdict)
    assert verdict.figures["messages decoded"] == 2 * len(run.sent)


def test_value_that_is_not_what_was_sent_is_recorded(tmp_path: Path) -> None:
    run = _Run(tmp_path)
    values = _read(run, NEWER)
    values[3] = values[3].model_copy(update={"unwritten": "by somebody"})
    values[4:6] = [b"\xff", {"text": object()}]
    run.consume(NEWER, values)
    assert dict(run.judged().counts) == {"decoded": 3}


def test_value_that_is_not_available_ends_the_consumer(tmp_path: Path) -> None:
    run = _Run(tmp_path)
    run.consume(None, [SchemaUnavailable("no broker answers") for _ in run.sent])
    verdict = run.judged()
    assert verdict.clean, str(verdict)
    assert verdict.figures["messages not decoded"] == 1
    assert list(verdict.errors) == [
        "undecoded: SchemaUnavailable: no broker answers",
        "error: SchemaUnavailable: no broker answers",
    ]


def test_answers_to_offers_are_recorded(tmp_path: Path) -> None:
    run = _Run(tmp_path)
    definition = evolution.incompatible(random.Random(1))
    announce_offer(run.clients.recorder, TOPIC, definition)
    for error in (IncompatibleSchema("field must_1"), BrokerFailed("lost")):
        with pytest.raises(type(error)), offering(run.clients.recorder, TOPIC, definition):
            raise error
    verdict = run.judged()
    assert verdict.clean, str(verdict)
    assert [verdict.figures[f"definitions {result}"] for result in ("registered", "refused", "unknown")] == [1, 1, 1]


def test_registered_incompatible_definition_is_recorded(tmp_path: Path) -> None:
    run = _Run(tmp_path)
    definition = evolution.incompatible(random.Random(1))
    announce_offer(run.clients.recorder, TOPIC, definition)
    with offering(run.clients.recorder, TOPIC, definition):
        pass
    assert dict(run.judged().counts) == {"registry": 1}
