"""A consumer with a schema gets the value that was sent, as its own definition reads it.

Avro's rule, for the fields of a record: a reader has its own fields, each with the value that was sent, or with its
default if the writer's definition lacks the field. A consumer without a definition gets the value with the writer's.
"""

from __future__ import annotations

import json
from typing import Any

from tests.faults.checker.history import Line
from tests.faults.checker.rule import Rule
from tests.faults.checker.things import Consumer, Producer, value_text


class Decoded(Rule):
    name = "decoded"

    def on_decoded(self, line: Line) -> None:
        consumer = self.facts.consumer(line)
        for name, number, _, value in line.fields["items"]:
            producer = self.facts.producers.get(name)
            if producer is None or not 0 <= number < len(producer.values):
                self.found(f"{consumer.name} decoded message {number} of {name}, which was not sent with a schema")
                continue
            wanted = self._expected(producer, number, consumer)
            if value_text(value) != wanted:
                self.found(
                    f"message {number} of {name} was decoded by {consumer.name} as "
                    f"{value_text(value)[:300]}; expected {wanted[:300]}"
                )

    def on_undecoded(self, line: Line) -> None:
        if line.fields["temporary"]:
            return
        for name, number in line.fields["items"]:
            self.found(
                f"message {number} of {name} was not decoded by {line.fields['consumer']}: {line.fields['why'][:300]}"
            )

    def _expected(self, producer: Producer, number: int, consumer: Consumer) -> str:
        sent = producer.values[number]
        if not consumer.definition:
            return sent
        fields = self.facts.definitions[consumer.subscription.topic.name, consumer.definition].fields
        values: dict[str, Any] = json.loads(sent)
        defaults = {name: default[0] for name, default in fields.items() if default}
        return value_text(defaults | {name: value for name, value in values.items() if name in fields})


RULE = Decoded
