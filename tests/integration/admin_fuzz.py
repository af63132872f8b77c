"""Requests made from a broker's own `/openapi.json`, valid and invalid ones, while the rest of the broker must go on.

    python -m tests.integration.admin_fuzz --seconds 60 --seed 7

schemathesis generates the requests and checks the answers: no 5xx, a status, content type and headers that the document
names, and a body that fits its schema, so that every refusal has a reason. The requests of a seed are the same each
time; the broker's answers may differ with time.

Names of most valid requests are those of a tenant that exists, which is created again when it was deleted. Invalid
requests name one of several tenants with a topic, a subscription and messages: at the end each must be as it was,
unless a request on it was accepted, for example with a parameter too many.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import psutil
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.failures import FailureGroup
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

import magnetar
from magnetar.admin import Admin
from magnetar_testing.standalone_process import StandaloneProcess

__all__ = ["FuzzReport", "fuzz_admin_api"]

CHECKS: Final = (
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    response_headers_conformance,
)
SENTINELS: Final = 8
MESSAGES: Final = 10
EXAMPLES: Final = 4
# On a loaded machine few are reached in seconds.
MIN_OPERATIONS: Final = 40
# Modules that are imported late, caches, and the topics that requests create.
MAX_GROWTH_MB: Final = 150
# Names that valid requests have: what they name exists.
NAMES: Final = {
    "tenant": "fuzzed",
    "namespace": "space",
    "topic": "topic",
    "subName": "subscription",
    "subscription": "subscription",
    "bundle": "0x00000000_0xffffffff",
    "domain": "persistent",
}
# It ends the process, as it should.
ENDS_THE_BROKER: Final = "/shutdown"


@dataclass
class FuzzReport:
    statuses: Counter[int] = field(default_factory=Counter)
    operations: int = 0
    # Sentinels on which a request was accepted.
    changed: set[str] = field(default_factory=set)
    refused_on_sentinels: int = 0
    problems: list[str] = field(default_factory=list)


def fuzz_admin_api(server: StandaloneProcess, seconds: float, seed_number: int) -> FuzzReport:
    """Send requests for this time and to at least `MIN_OPERATIONS` operations, and compare the sentinels. The report
    lists the problems."""
    fuzz = _Fuzz(server, seed_number)
    before = {name: fuzz.describe_sentinel(name) for name in fuzz.sentinels}
    fuzz.run(time.monotonic() + seconds)
    fuzz.check_health()
    for name in fuzz.sentinels:
        if name not in fuzz.report.changed and fuzz.describe_sentinel(name) != before[name]:
            fuzz.report.problems.append(f"{name} has changed, though every request on it was refused")
    return fuzz.report


class _Fuzz:
    def __init__(self, server: StandaloneProcess, seed_number: int) -> None:
        self._server = server
        self._seed = seed_number
        self._random = random.Random(seed_number)
        self._session = requests.Session()
        self._resident_at_start = self._resident_bytes()
        self.report = FuzzReport()
        self.sentinels = [f"sentinel-{number}" for number in range(SENTINELS)]
        with Admin(server.service_url) as admin, server.client() as client:
            for name in self.sentinels:
                admin.tenants.create(name)
                admin.namespaces.create(f"{name}/space")
                client.subscribe(f"{name}/space/topic", "subscription").close()
                producer = client.create_producer(f"{name}/space/topic")
                for number in range(MESSAGES):
                    producer.send(b"%d" % number)
                producer.close()

    def _resident_bytes(self) -> int:
        return psutil.Process(self._server.pid).memory_info().rss

    def describe_sentinel(self, name: str) -> Any:
        """Return what no refused request may change."""
        topic = f"{name}/space/topic"
        with Admin(self._server.service_url) as admin, self._server.client() as client:
            stats = admin.topics.stats(topic)
            with client.create_reader(topic, magnetar.MessageId.earliest) as reader:
                messages = [reader.read_next(timeout_millis=30_000).data() for _ in range(MESSAGES)]
            return (
                admin.tenants.get(name),
                admin.namespaces.policies(f"{name}/space"),
                admin.subscriptions.list(topic),
                [(one.subscription, one.backlog_entries) for one in stats.subscriptions if one.durable],
                messages,
            )

    def run(self, deadline: float) -> None:
        schema = schemathesis.openapi.from_url(f"{self._server.http_url}/openapi.json")
        # An operation that schemathesis can't read would be an error without `ok`.
        found: list[Any] = [result.ok() for result in schema.get_all_operations()]  # type: ignore[union-attr]
        operations = [one for one in found if not one.path.endswith(ENDS_THE_BROKER)]
        rounds = 0
        while True:
            self._random.shuffle(operations)
            for number, operation in enumerate(operations):
                if time.monotonic() > deadline and self.report.operations >= MIN_OPERATIONS:
                    return
                if number % 10 == 0:
                    self._restore()
                mode = self._random.choice([GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
                self._ask(operation, mode, self._seed + rounds)
            rounds += 1

    def _restore(self) -> None:
        base = f"{self._server.http_url}/admin/v2"
        for path, body in (
            ("tenants/fuzzed", {"allowedClusters": ["standalone"]}),
            ("namespaces/fuzzed/space", None),
            ("persistent/fuzzed/space/topic", None),
            ("persistent/fuzzed/space/topic/subscription/subscription", None),
        ):
            answer = self._session.put(f"{base}/{path}", json=body, timeout=30)
            if answer.status_code >= 500:
                self.report.problems.append(f"PUT {path} is answered with {answer.status_code} {answer.text[:200]}")

    def _ask(self, operation: Any, mode: GenerationMode, seed_number: int) -> None:
        self.report.operations += 1

        @seed(seed_number)
        @settings(
            max_examples=EXAMPLES,
            database=None,
            phases=[Phase.generate],
            deadline=None,
            suppress_health_check=list(HealthCheck),
        )
        @given(operation.as_strategy(generation_mode=mode))
        def send(case: Any) -> None:
            self._send(case, mode)

        try:
            send()
        except Unsatisfiable:
            pass  # there is no invalid request of it
        except FailureGroup as failures:
            self.report.problems.append(f"{operation.label}: {str(failures)[:1500]}")

    def _send(self, case: Any, mode: GenerationMode) -> None:
        sentinel = self._random.choice(self.sentinels) if mode is GenerationMode.NEGATIVE else ""
        for name, value in NAMES.items():
            # Invalid requests keep a name that makes them so.
            if name in case.path_parameters and (not sentinel or name == "tenant") and self._random.random() < 0.8:
                case.path_parameters[name] = (sentinel if name == "tenant" else value) if sentinel else value
        answer = case.call(session=self._session, timeout=30)
        self.report.statuses[answer.status_code] += 1
        named = case.path_parameters.get("tenant", "")
        if named in self.sentinels:
            is_change = case.method.upper() not in ("GET", "HEAD", "OPTIONS")
            if is_change and answer.status_code < 400:
                self.report.changed.add(named)
            elif is_change:
                self.report.refused_on_sentinels += 1
        case.validate_response(answer, checks=CHECKS)

    def check_health(self) -> None:
        grown = (self._resident_bytes() - self._resident_at_start) / 1e6
        if grown > MAX_GROWTH_MB:
            self.report.problems.append(f"the broker's process has grown by {grown:.0f} MB")
        answer = self._session.get(f"{self._server.http_url}/health", timeout=60)
        if answer.status_code != 200:
            self.report.problems.append(f"the broker is not healthy: {answer.text}")
        if " ERROR " in self._server.logged:
            self.report.problems.append(f"the broker's log has errors: {self._server.logged[-2000:]}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    sys.stdout.write(f"seed {arguments.seed}\n")
    with tempfile.TemporaryDirectory() as folder, StandaloneProcess(Path(folder) / "data") as server:
        report = fuzz_admin_api(server, arguments.seconds, arguments.seed)
    sys.stdout.write(f"{report}\n")
    return 1 if report.problems else 0


if __name__ == "__main__":
    sys.exit(main())
