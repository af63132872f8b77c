"""One client with typed messages, for the benchmarks: `python -m tests.bench.typed_client MODULE URL COUNT`.

MODULE is `magnetar`, with a pydantic model, or `pulsar`, with its own `Record` of the same fields. It prints a line of
JSON for each bench, with the messages and the CPU seconds of this process, all threads counted.

Making the values is part of the work, since both libraries have their own classes for it: an application makes a value
for each message. With `--ready-made` it is not; then the same thousand values are sent again and again.
"""

from __future__ import annotations

import importlib
import itertools
import json
import os
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any, Final

__all__ = ["BENCHES"]

BENCHES: Final = ("publish_avro", "publish_json", "consume_avro")
_WARM_UP: Final = 200
_READY_MADE: Final = 1000

# Make the value of a number.
Make = Callable[[int], Any]


def main(module: str, url: str, count: str, *flags: str) -> None:
    api = importlib.import_module(module)
    schemas, make = _our_schemas(api) if module == "magnetar" else _stock_schemas(api)
    values = _ready_made(make) if "--ready-made" in flags else make
    extra = {} if module == "magnetar" else {"logger": api.ConsoleLogger(api.LoggerLevel.Error)}
    client = api.Client(url, **extra)
    for bench in BENCHES:
        encoding = bench.partition("_")[2]
        topic = f"{encoding}-{module}-{os.getpid()}"
        act = _publish if bench.startswith("publish") else _consume
        try:
            figures = act(api, client, topic, schemas[encoding], values, int(count))
        except Exception as error:  # noqa: BLE001 (a failed bench is reported, and the others go on)
            figures = {"error": f"{type(error).__name__}: {error}"}
        sys.stdout.write(json.dumps({"bench": bench, **figures}) + "\n")
        sys.stdout.flush()
    os._exit(0)


def _publish(api: Any, client: Any, topic: str, schema: Any, values: Make, count: int) -> dict[str, Any]:
    producer = client.create_producer(
        topic,
        schema=schema,
        batching_enabled=True,
        batching_max_messages=1000,
        batching_max_allowed_size_in_bytes=131_072,
        batching_max_publish_delay_ms=5,
        max_pending_messages=20_000,
        block_if_queue_full=True,
    )
    for number in range(_WARM_UP):
        producer.send_async(values(number), None)
    producer.flush()

    def publish(numbers: Iterable[int]) -> None:
        for number in numbers:
            producer.send_async(values(number), None)
        producer.flush()

    figures = _measured(publish, count)
    producer.close()
    return figures


def _consume(api: Any, client: Any, topic: str, schema: Any, values: Make, count: int) -> dict[str, Any]:
    """Receive what was published to the topic before."""
    consumer = client.subscribe(
        topic,
        "bench",
        schema=schema,
        initial_position=api.InitialPosition.Earliest,
        receiver_queue_size=5000,
    )
    warm = _receive_one(consumer, 0.0)

    def consume(numbers: Iterable[int]) -> None:
        total = warm
        for _ in numbers:
            total = _receive_one(consumer, total)
        assert total > 0

    figures = _measured(consume, count)
    consumer.close()
    return figures


def _receive_one(consumer: Any, total: float) -> float:
    message = consumer.receive(10_000)
    total += message.value().temperature
    consumer.acknowledge(message)
    return total


def _measured(act: Callable[[Iterable[int]], None], count: int) -> dict[str, Any]:
    began, cpu = time.perf_counter(), time.process_time()
    act(range(count))
    return {
        "messages": count,
        "client_cpu_s": time.process_time() - cpu,
        "messages_per_s": round(count / (time.perf_counter() - began)),
    }


def _ready_made(make: Make) -> Make:
    made = itertools.cycle([make(number) for number in range(_READY_MADE)])
    return lambda _: next(made)


def _maker(reading: Callable[..., Any]) -> Make:
    return lambda number: reading(
        sensor="station-17/roof",
        city="Zürich",
        number=number,
        taken_ms=1_700_000_000_000 + number,
        temperature=15.0 + number % 100 / 8,
        humidity=0.625,
        outdoors=True,
        note="",
    )


def _our_schemas(api: Any) -> tuple[dict[str, Any], Make]:
    from pydantic import BaseModel

    class Reading(BaseModel):
        sensor: str
        city: str
        number: int
        taken_ms: int
        temperature: float
        humidity: float
        outdoors: bool
        note: str

    schemas = {"avro": Reading, "json": api.schema.JsonSchema(Reading)}
    return schemas, _maker(Reading)


def _stock_schemas(api: Any) -> tuple[dict[str, Any], Make]:
    part = api.schema

    class Reading(part.Record):  # type: ignore[misc, name-defined]
        sensor = part.String(required=True)
        city = part.String(required=True)
        number = part.Long(required=True)
        taken_ms = part.Long(required=True)
        temperature = part.Double(required=True)
        humidity = part.Double(required=True)
        outdoors = part.Boolean(required=True)
        note = part.String(required=True)

    schemas = {"avro": part.AvroSchema(Reading), "json": part.JsonSchema(Reading)}
    return schemas, _maker(Reading)


if __name__ == "__main__":
    main(*sys.argv[1:])
