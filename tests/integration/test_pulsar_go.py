"""Pulsar's Go client with a service URL of HTTP, and its admin client: the program in `tests/go_admin`."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any, Final

import pytest

from tests.stock_clients import stock_server

# The modules are fetched and compiled by the first run, which takes minutes.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900), pytest.mark.xdist_group("go")]

_SOURCES: Final = Path(__file__).parents[1] / "go_admin"
_BUILDING_S: Final = 700.0
_RUNNING_S: Final = 120.0
_DEFINITION: Final = '{"type":"record","name":"R","fields":[{"name":"a","type":"int"}]}'
# What each check returns; those that are not listed return nothing.
_VALUES: Final[dict[str, Any]] = {
    "tenants.get": ["standalone"],
    "namespaces.retention.get": {"retentionTimeInMinutes": 10, "retentionSizeInMB": 5},
    "topics.partitions": 2,
    "schemas.get": [0, "AVRO", _DEFINITION, {"k": "v"}],
    "schemas.get.version": _DEFINITION,
    "schemas.get.missing": True,
    "subscriptions.list": ["s"],
    "client.partitions": 3,
    "client.received.plain": 3,
    "client.received.parts": 3,
    "client.received.pattern": "first",
    "schemas.value.avro": {"x": 7, "name": "ü"},
    "schemas.value.json": {"x": 7, "name": "ü"},
    "schemas.value.string": "ü",
    "schemas.value.int64": 7,
    **{f"schemas.version.{kind}": 0 for kind in ("avro", "json", "string", "int64")},
    "schemas.refused": True,
    "schemas.type": "AVRO",
    "topics.stats": 3,
    "subscriptions.peek": 1,
    "topics.stats.cleared": 0,
    "topics.lookup": True,
    "tenants.deleted": True,
}
_CHECKS: Final = 47


def test_the_go_clients_work_over_http(tmp_path: Path) -> None:
    """WIRE-1. SUB-8: a pattern's new topic joins from its first message, over Pulsar's protocol."""
    go = shutil.which("go")
    if go is None:
        pytest.skip("go is not on the PATH")
    program = tmp_path / "go_admin"
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
    tenant = f"go-{os.getpid()}-{time.time_ns()}"
    with stock_server(tmp_path / "data") as server:
        ended = subprocess.run(
            [program, server.http_url, tenant, server.url],
            capture_output=True,
            text=True,
            timeout=_RUNNING_S,
            check=False,
        )
    assert ended.returncode == 0, ended.stderr[-3000:]
    lines = [json.loads(line) for line in ended.stdout.splitlines()]
    assert [line for line in lines if "error" in line] == []
    expected = _VALUES | {"namespaces.list": [f"{tenant}/n"]}
    assert {line["check"]: line["value"] for line in lines if line["value"] is not None} == expected
    assert len(lines) == _CHECKS
