from __future__ import annotations

import json
import shutil
import types
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bench import client_runs
from tests.bench.harness import Result, beside_peer, ratio, run_group
from tests.peers import PeerUnavailable, running


def group(benches: object) -> types.ModuleType:
    module = types.ModuleType("bench_planted")
    module.benches = benches  # type: ignore[attr-defined]
    return module


def test_a_result_is_one_json_object_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    def benches() -> Iterator[Result]:
        yield Result("codec.encode", 9.12345, "ratio", "an object per message", 8)
        yield Result("sdk.consume", None, "ratio", why="pulsar can't be started here")

    assert run_group(group(benches)) == 0
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == [
        {"bench": "codec.encode", "value": 9.123, "unit": "ratio", "against": "an object per message", "floor": 8},
        {"bench": "sdk.consume", "value": None, "unit": "ratio", "why": "pulsar can't be started here"},
    ]


def test_a_missed_floor_is_no_failure_and_a_broken_group_is(capsys: pytest.CaptureFixture[str]) -> None:
    def benches() -> Iterator[Result]:
        yield Result("below", 0.1, "ratio", floor=8)
        raise ZeroDivisionError

    assert run_group(group(benches)) == 1
    output = capsys.readouterr()
    assert json.loads(output.out)["bench"] == "below"
    assert "ZeroDivisionError" in output.err


def test_the_arms_of_a_ratio_take_turns(capsys: pytest.CaptureFixture[str]) -> None:
    calls: list[str] = []
    result = ratio("x", lambda: calls.append("a"), lambda: calls.append("b"), against="b", floor=1)
    assert result.value is not None
    assert result.value > 0
    assert capsys.readouterr().out == ""
    turns = [name for name, before in zip(calls, ["", *calls], strict=False) if name != before]
    assert len(turns) >= 2 * 5  # at least five turns each, one after the other


@pytest.fixture
def bare_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with a shell's usual tools, and none of those that the peers need."""
    for tool in ("bash", "cat", "dirname", "mkdir", "realpath", "sed"):
        found = shutil.which(tool)
        if found is None:
            pytest.skip(f"starting peers needs {tool}, which is not on the PATH")
        (tmp_path / tool).symlink_to(found)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PEERS_HOME", str(tmp_path / "peers"))


@pytest.mark.usefixtures("bare_machine")
def test_unavailable_peer_is_reported_without_a_value() -> None:
    with pytest.raises(PeerUnavailable, match="pulsar needs java"), running("pulsar"):
        pass
    planned = Result("sdk.consume", 1.0, "ratio", "pulsar-client on Pulsar", 2)
    (output,) = beside_peer("pulsar", [planned], lambda _url: [planned])
    assert (output.bench, output.value, output.floor) == ("sdk.consume", None, 2)
    assert output.why == "pulsar can't be started here: pulsar needs java, which is not on the PATH"


def test_lines_that_a_client_logs_are_no_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """pulsar-client logs to standard output, and so do others: `make bench ONLY=wire` went down with the first line."""
    child = tmp_path / "clients.py"
    child.write_text(
        "import json\n"
        "print('2026-01-31 12:00:00.000 WARN  [1] ClientConnection:1 | Connection closed', flush=True)\n"
        "print(json.dumps({'bench': 'consume', 'size': 100, 'messages_per_s': 7}))\n"
        "for logged in ('17', '[]', '{\"level\": \"WARN\"}', ''):\n"
        "    print(logged)\n"
    )
    monkeypatch.setattr(client_runs, "_CLIENTS", child)
    figures = client_runs.run_client(["--label", "ours"], [("consume", 100), ("publish_acked", 100)], 1.0)
    assert figures["consume", 100]["messages_per_s"] == 7
    assert "ours printed no figure (status 0)" in figures["publish_acked", 100]["error"]
    assert "ours logged: 2026-01-31 12:00:00.000 WARN" in capsys.readouterr().err
