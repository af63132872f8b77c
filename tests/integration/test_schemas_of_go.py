"""Producers and consumers of values, ours and those of Pulsar's Go client, on one topic (SCH-3).

The program in `tests/go_schemas` receives the values that our client has sent, and sends them again.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

import magnetar
from magnetar import schema as schemas
from magnetar.schema import Schema

# The modules are fetched and compiled by the first run, which takes minutes.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900), pytest.mark.xdist_group("go")]

_SOURCES: Final = Path(__file__).parents[1] / "go_schemas"
_BUILDING_S: Final = 700.0
_RUNNING_S: Final = 120.0
_LONG_MS: Final = 40_000


class Address(schemas.Record):
    city = schemas.String(required=True)


class Reading(schemas.Record):
    small = schemas.Integer(required=True)
    large = schemas.Long(required=True)
    real = schemas.Double(required=True)
    flag = schemas.Boolean(required=True)
    text = schemas.String(required=True)
    raw = schemas.Bytes(required=True)
    maybe = schemas.String()
    words = schemas.Array(schemas.String(), required=True)
    numbers = schemas.Map(schemas.Long(), required=True)
    address = Address(required=True)


def _reading(raw: bytes) -> Reading:
    return Reading(
        small=-7,
        large=2**60,
        real=0.5,
        flag=True,
        text="naïve",
        raw=raw,
        words=["a"],
        numbers={"one": 1},
        address={"city": "Ulm"},
    )


_VALUES: Final[dict[str, tuple[Schema[Any], Any]]] = {
    "avro": (schemas.AvroSchema(Reading), _reading(b"\xff")),
    "json": (schemas.JsonSchema(Reading), _reading(b"")),  # Go's bytes are base64
    "double": (schemas.DoubleSchema(), 0.1),
    "protobuf_native": (schemas.ProtobufNativeSchema(Timestamp), Timestamp(seconds=7)),
}


def _build(program: Path) -> None:
    go = shutil.which("go")
    if go is None:
        pytest.skip("go is not on the PATH")
    built = subprocess.run(
        [go, "build", "-o", program, "."],
        cwd=_SOURCES,
        capture_output=True,
        text=True,
        timeout=_BUILDING_S,
        check=False,
    )
    if built.returncode and ("dial tcp" in built.stderr or "no such host" in built.stderr):
        pytest.skip(f"the modules of Pulsar's Go client can't be fetched: {built.stderr.splitlines()[-1]}")
    assert built.returncode == 0, built.stderr[-3000:]


def test_values_go_to_go_and_back(tmp_path: Path, magnetar_standalone: Any) -> None:
    _build(tmp_path / "program")
    suffix = f"{os.getpid()}-{time.time_ns()}"
    with closing(magnetar.Client(magnetar_standalone.service_url)) as client:
        for name, (schema, value) in _VALUES.items():
            client.create_producer(f"{name}-{suffix}", schema=schema).send(value)
        ended = subprocess.run(
            [tmp_path / "program", magnetar_standalone.pulsar_url, suffix],
            capture_output=True,
            text=True,
            timeout=_RUNNING_S,
            check=False,
        )
        assert ended.returncode == 0, ended.stderr[-3000:]
        for name, (schema, value) in _VALUES.items():
            consumer = client.subscribe(
                f"{name}-{suffix}", "s", schema=schema, initial_position=magnetar.InitialPosition.Earliest
            )
            assert [consumer.receive(_LONG_MS).value() for _ in range(2)] == [value, value]
