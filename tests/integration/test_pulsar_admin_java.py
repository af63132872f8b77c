"""Pulsar's own admin client for Java on a standalone: each step's answer is compared with Pulsar's, field by field.

`tests/vectors/pulsar_admin.json` has the answers of Pulsar 4.0.7. Where one can start, the soak test compares the
record with it. `python -m tests.integration.test_pulsar_admin_java` records again.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final

import pytest

from magnetar_cli.local_java import OLDEST_VERSION, find_installed_java
from magnetar_testing.standalone_process import StandaloneProcess
from tests import peers
from tests.admin_differences import DIFFERENCES, UNSUPPORTED
from tests.admin_steps import Outcomes, compare, run_admin_steps
from tests.peers import PeerUnavailable, java_admin_jars

# The client is fetched by the first run, which may take a minute.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600), pytest.mark.xdist_group("java")]

_NOT_SUPPORTED: Final = 405
_RECORD: Final = Path(__file__).parents[1] / "vectors" / "pulsar_admin.json"


def _recorded() -> Outcomes:
    steps: Outcomes = json.loads(_RECORD.read_text())
    return steps


@contextmanager
def _jars() -> Iterator[Path]:
    if find_installed_java() is None:
        pytest.skip(f"no JDK {OLDEST_VERSION} or newer in JAVA_HOME or PATH")
    try:
        yield java_admin_jars()
    except PeerUnavailable as error:
        pytest.skip(str(error))


def test_answers_are_pulsars(tmp_path: Path) -> None:
    """Each field of each answer is Pulsar's, except for the differences that the tables explain."""
    with _jars() as jars, StandaloneProcess(tmp_path / "data") as server:
        ours = run_admin_steps(tmp_path, jars, server.http_url, server.http_url, "standalone")
    found = compare(_recorded(), ours)
    refused = {name for name in found if ours[_step(name)].get("status") == _NOT_SUPPORTED}
    unexplained = [
        _text(name, values)
        for name, values in found.items()
        if not _matches(name, DIFFERENCES) and not (name in refused and _matches(_step(name), UNSUPPORTED))
    ]
    assert not unexplained, f"{len(unexplained)} fields differ from Pulsar's:\n" + "\n".join(unexplained)
    unneeded = _list_unneeded(DIFFERENCES, found) + _list_unneeded(UNSUPPORTED, map(_step, refused))
    assert not unneeded, f"no answer differs any more: remove these rows: {unneeded}"


@pytest.mark.soak
def test_the_record_is_pulsars(tmp_path: Path) -> None:
    """A Pulsar that is started now gives the recorded answers."""
    with _jars() as jars, peers.running("pulsar"):
        live = run_admin_steps(tmp_path, jars, peers.PULSAR_HTTP_URL, peers.PULSAR_HTTP_URL, "standalone")
    assert [_text(name, values) for name, values in compare(_recorded(), live).items()] == []


def test_rows_say_why() -> None:
    assert [pattern for pattern, reason in {**DIFFERENCES, **UNSUPPORTED}.items() if len(reason) < 10] == []


def _step(name: str) -> str:
    return name.partition(": ")[0]


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _list_unneeded(patterns: Iterable[str], names: Iterable[str]) -> list[str]:
    all_names = list(names)
    return [pattern for pattern in patterns if not any(fnmatchcase(name, pattern) for name in all_names)]


def _text(name: str, values: tuple[Any, Any]) -> str:
    return f"{name} is {json.dumps(values[1])}, on Pulsar {json.dumps(values[0])}"


def _record() -> None:
    with tempfile.TemporaryDirectory() as folder, peers.running("pulsar"):
        steps = run_admin_steps(
            Path(folder), java_admin_jars(), peers.PULSAR_HTTP_URL, peers.PULSAR_HTTP_URL, "standalone"
        )
    lines = (f"{json.dumps(step)}: {json.dumps(outcome, sort_keys=True)}" for step, outcome in steps.items())
    _RECORD.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    _record()
