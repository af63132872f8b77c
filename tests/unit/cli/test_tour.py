"""The parts of the tour: its messages, its checks, and its child processes."""

from __future__ import annotations

import io
from collections import Counter
from pathlib import Path

import pytest
from rich.console import Console

from magnetar_cli.tour.child import Child
from magnetar_cli.tour.messaging import WrongResult, _ReceivedNumbers
from magnetar_cli.tour.narrator import Narrator
from magnetar_cli.tour.readings import MINUTE_MS, ROOMS, count_by_minute, generate_readings, parse_number
from magnetar_cli.tour.spark_step import SparkFailed, SparkStep
from magnetar_cli.tour.steps import _make_counts_table

_NOW_MS = 1_700_000_000_000


def test_readings_are_deterministic_and_counted_by_minute() -> None:
    made = list(generate_readings(5_000, _NOW_MS))
    assert made == list(generate_readings(5_000, _NOW_MS))
    assert [parse_number(reading.value) for reading in made] == list(range(5_000))
    found = count_by_minute(iter(made))
    assert found.total() == 5_000
    assert {room for _, room in found} == set(ROOMS)
    minutes = {minute for minute, _ in found}
    assert len(minutes) == 10
    assert all(minute % MINUTE_MS == 0 and _NOW_MS - 11 * MINUTE_MS <= minute <= _NOW_MS for minute in minutes)
    assert found[made[0].time_ms // MINUTE_MS * MINUTE_MS, made[0].room] > 0


def test_duplicate_and_missing_messages_are_detected() -> None:
    received = _ReceivedNumbers(3, lambda count: None)
    received.add(0)
    received.add(2)
    with pytest.raises(WrongResult, match="number 2 was received twice"):
        received.add(2)
    with pytest.raises(WrongResult, match="3 messages should be received; 2 were"):
        received.check_complete()
    received.add(1)
    assert received.has_ended
    received.check_complete()


def test_consumer_thread_error_is_raised_in_the_waiting_thread() -> None:
    received = _ReceivedNumbers(3, lambda count: None)

    def fail(at: int) -> None:
        raise WrongResult(f"consumer {at} failed")

    received.run(fail, 7)
    received.wait()
    with pytest.raises(WrongResult, match="consumer 7 failed"):
        received.check_complete()


def test_narration_fits_the_terminal_and_is_not_truncated() -> None:
    for width in (80, 200):
        file = io.StringIO()
        narrator = Narrator(Console(file=file, width=width))
        narrator.title("1. A title")
        narrator.done("done " * 30)
        with narrator.counting("counting", 5) as count:
            count(3)
        narrator.show(_make_counts_table(Counter({(_NOW_MS, room): 1_000_000 for room in ROOMS})))
        lines = file.getvalue().splitlines()
        assert max(len(line) for line in lines) <= 100
        assert file.getvalue().count("done") == 30
        assert "1. A title" in lines
        assert any("4,000,000" in line for line in lines)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a module for children: it executes each argument as a line of Python."""
    (tmp_path / "executes.py").write_text("import os, sys, time\nfor act in sys.argv[1:]:\n    exec(act)\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return tmp_path


@pytest.mark.slow
def test_a_child_is_read_by_lines_up_to_its_end(folder: Path) -> None:
    writes = r"os.write(1, b'one\ntw'); os.write(1, b'o\nthree'); print('to the log', file=sys.stderr)"
    with Child(folder / "log", "executes", writes, "sys.exit(7)") as child:
        assert child.read_line(60) == "one"
        assert child.read_line(60) == "two"
        assert child.read_line(60) is None  # an incomplete line is not returned
        assert child.wait() == 7
        assert child.read_log_end() == "to the log"


@pytest.mark.slow
def test_silent_child_times_out_and_stubborn_child_is_killed(folder: Path) -> None:
    stubborn = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready', flush=True)"
    with Child(folder / "log", "executes", stubborn, "time.sleep(600)") as child:
        assert child.read_line(60) == "ready"
        with pytest.raises(TimeoutError, match="no output for"):
            child.read_line(0.05)
        child.stop_timeout_s = 0.1
    assert child.status is not None


@pytest.mark.slow
def test_spark_failure_shows_its_error_without_the_traceback(folder: Path) -> None:
    log = r"print('WARN noise\nTraceback (most recent call last):\n  File x\nbad.Error: no topic', file=sys.stderr)"
    with Child(folder / "log", "executes", 'print(\'{"spark": "4.3.0"}\')', log, "sys.exit(1)") as child:
        spark = SparkStep(child)
        assert spark.wait_version() == "4.3.0"
        with pytest.raises(SparkFailed) as failed:
            spark.wait_counts(lambda count: None)
    first, *rest = str(failed.value).splitlines()
    assert first == "Spark ended with the status 1: bad.Error: no topic"
    assert rest == ["It logged last:", "WARN noise", "bad.Error: no topic"]


@pytest.mark.slow
def test_spark_step_reports_progress_and_returns_counts(folder: Path) -> None:
    rows = '{"counts": [{"minute_ms": 60000, "room": "hall", "count": 3}]}'
    reported: list[int] = []
    with Child(folder / "log", "executes", f"print('{{\"messages\": 2}}'); print('{rows}')") as child:
        assert SparkStep(child).wait_counts(reported.append) == {(60_000, "hall"): 3}
    assert reported == [2]
