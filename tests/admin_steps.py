"""Steps of Pulsar's admin client for Java, the program in `tests/java_admin`, and their outcomes.

    outcomes = run_admin_steps(folder, java_admin_jars(), server.http_url, server.http_url, "standalone")
    differences = compare(recorded, outcomes)

Outcomes are normalised: tenants, hosts and ports get the same names, and values that differ between two runs (times,
rates, ledger ids, addresses) are replaced by the name of their type. What is left must be equal on Pulsar and here.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

__all__ = ["ABSENT", "Outcomes", "compare", "normalise", "run_admin_steps"]

# The outcome of each step, by its name.
Outcomes = dict[str, Any]

ABSENT: Final = "<absent>"
_SOURCES: Final = Path(__file__).with_name("java_admin")
_COMPILING_S: Final = 120.0
_RUNNING_S: Final = 200.0
_JAVA: Final = ("java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx512m")
_JAVAC: Final = ("javac", "-J-XX:TieredStopAtLevel=1", "-J-XX:+UseSerialGC", "-proc:none", "-nowarn")

# Fields whose values differ between two runs on one server. Their types must be equal.
_VOLATILE: Final = re.compile(
    r"(?i)(rate|throughput|time\w*|timestamp|since|address|version|ledgerid|size|position|modified|cursorledger"
    r"|lastmarkdeletedexecuted|bytes\w*counter|properties?version|created|ownerbroker|ledgers?|duration|millis"
    r"|publisherid|producerid|consumerid|epoch|ms)$"
)
# Numbers of settings end in such words, too, but are the same in each run.
_STABLE_STEPS: Final = ("ns.", "topic.", "namespaces.", "brokers.dynamic")


def run_admin_steps(folder: Path, jars: Path, http_url: str, client_url: str, cluster: str) -> Outcomes:
    """Compile the program into `folder`, run it, and return the normalised outcome of each step."""
    library = f"{jars}/*"
    classes = folder / "classes"
    sources = sorted(map(str, _SOURCES.glob("*.java")))
    subprocess.run([*_JAVAC, "-d", classes, "-cp", library, *sources], check=True, timeout=_COMPILING_S)
    tenant = f"steps-{os.getpid()}-{time.time_ns()}"
    program = ("-cp", os.pathsep.join((str(classes), library)), "AdminSteps")
    command = [*_JAVA, *program, http_url, client_url, tenant, cluster]
    with (folder / "java.log").open("wb") as log:
        ended = subprocess.run(command, stdout=subprocess.PIPE, stderr=log, text=True, timeout=_RUNNING_S, check=False)
    assert ended.returncode == 0, (folder / "java.log").read_text()[-3000:]
    lines = [json.loads(line) for line in ended.stdout.splitlines()]
    return {line["step"]: normalise(line["step"], line["outcome"], tenant) for line in lines}


def normalise(step: str, outcome: Any, tenant: str) -> Any:
    """Return the outcome without what must differ between two runs."""
    return _normalised(step, "", json.loads(json.dumps(outcome).replace(tenant, "TENANT")))


def _normalised(step: str, name: str, value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _normalised(step, key, each) for key, each in sorted(value.items())}
    if isinstance(value, list):
        if name in {"ledgers"}:
            return "<ledgers>"
        return [_normalised(step, name, each) for each in value]
    if isinstance(value, str):
        value = re.sub(r"(?<!\w)(?<!\d\.)\d+:(-?\d+)(?!\w)", r"LEDGER:\1", value)
        value = re.sub(r"(pulsar|https?)(\+ssl)?://[\w.-]+:\d+", r"\1://HOST:PORT", value)
    volatile = _VOLATILE.search(name) and not step.startswith(_STABLE_STEPS) and not isinstance(value, bool)
    if volatile and value is not None and value not in (-1, ""):
        return "<number>" if isinstance(value, int | float) else f"<{type(value).__name__}>"
    return value


def compare(recorded: Mapping[str, Any], outcomes: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return the fields that differ, as (recorded, ours), by "step: path of the field"."""
    found: dict[str, tuple[Any, Any]] = {}
    for step in sorted(recorded.keys() | outcomes.keys()):
        for path, ours in _differences(recorded.get(step, ABSENT), outcomes.get(step, ABSENT)):
            found[f"{step}: {path}"] = ours
    return found


def _differences(theirs: Any, ours: Any, path: str = "") -> Iterator[tuple[str, tuple[Any, Any]]]:
    if isinstance(theirs, dict) and isinstance(ours, dict):
        for key in sorted(theirs.keys() | ours.keys()):
            yield from _differences(theirs.get(key, ABSENT), ours.get(key, ABSENT), f"{path}.{key}".lstrip("."))
    elif isinstance(theirs, list) and isinstance(ours, list) and len(theirs) == len(ours):
        for number, (one, other) in enumerate(zip(theirs, ours, strict=True)):
            yield from _differences(one, other, f"{path}[{number}]")
    elif theirs != ours:
        yield path, (theirs, ours)
