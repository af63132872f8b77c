"""The tour's parts: what it publishes, what it sees, and the processes that end with it."""

from __future__ import annotations

import io
from collections import Counter
from pathlib import Path

import pytest
from rich.console import Console

from magnetar_cli.tour.child import Child
from magnetar_cli.tour.messaging import Unexpected, _Seen
from magnetar_cli.tour.narrator import Narrator
from magnetar_cli.tour.readings import MINUTE_MS, ROOMS, counts, number_of, readings
from magnetar_cli.tour.spark_step import SparkFailed, SparkStep
from magnetar_cli.tour.story import _table

_NOW_MS = 1_700_000_000_000


def test_readings_are_deterministic_and_counted_by_minute() -> None:
    made = list(readings(5_000, _NOW_MS))
    assert made == list(readings(5_000, _NOW_MS))
    assert [number_of(reading.value) for reading in made] == list(range(5_000))
    found = counts(iter(made))
    assert found.total() == 5_000
    assert {room for _, room in found} == set(ROOMS)
    minutes = {minute for minute, _ in found}
    assert len(minutes) == 10
    assert all(minute % MINUTE_MS == 0 and _NOW_MS - 11 * MINUTE_MS <= minute <= _NOW_MS for minute in minutes)
    assert found[made[0].time_ms // MINUTE_MS * MINUTE_MS, made[0].room] > 0


def test_duplicate_and_missing_messages_are_detected() -> None:
    seen = _Seen(3, lambda count: None)
    seen.note(0)
    seen.note(2)
    with pytest.raises(Unexpected, match="number 2 was received twice"):
        seen.note(2)
    with pytest.raises(Unexpected, match="3 messages should be received; 2 were"):
        seen.must_be_whole()
    seen.note(1)
    assert seen.over
    seen.must_be_whole()


def test_consumer_thread_error_is_raised_in_the_waiting_thread() -> None:
    seen = _Seen(3, lambda count: None)

    def fail(at: int) -> None:
        raise Unexpected(f"consumer {at} failed")

    seen.guarded(fail, 7)
    seen.wait()
    with pytest.raises(Unexpected, match="consumer 7 failed"):
        seen.must_be_whole()


def test_narration_fits_the_terminal_and_is_not_truncated() -> None:
    for width in (80, 200):
        file = io.StringIO()
        narrator = Narrator(Console(file=file, width=width))
        narrator.title("1. A title")
        narrator.done("done " * 30)
        with narrator.counting("counting", 5) as count:
            count(3)
        narrator.show(_table(Counter({(_NOW_MS, room): 1_000_000 for room in ROOMS})))
        lines = file.getvalue().splitlines()
        assert max(len(line) for line in lines) <= 100
        assert file.getvalue().count("done") == 30
        assert "1. A title" in lines
        assert any("4,000,000" in line for line in lines)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """With a module that children run: it does what it is told, a line of Python each."""
    (tmp_path / "obeys.py").write_text("import os, sys, time\nfor act in sys.argv[1:]:\n    exec(act)\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return tmp_path


@pytest.mark.slow
def test_a_child_is_read_by_lines_up_to_its_end(folder: Path) -> None:
    says = r"os.write(1, b'one\ntw'); os.write(1, b'o\nthree'); print('to the log', file=sys.stderr)"
    with Child(folder / "log", "obeys", says, "sys.exit(7)") as child:
        assert child.line(60) == "one"
        assert child.line(60) == "two"
        assert child.line(60) is None  # what is no whole line was not said
        assert child.wait() == 7
        assert child.last_words() == "to the log"


@pytest.mark.slow
def test_silent_child_times_out_and_stubborn_child_is_killed(folder: Path) -> None:
    stubborn = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready', flush=True)"
    with Child(folder / "log", "obeys", stubborn, "time.sleep(600)") as child:
        assert child.line(60) == "ready"
        with pytest.raises(TimeoutError, match="no output for"):
            child.line(0.05)
        child.end_s = 0.1
    assert child.status is not None


@pytest.mark.slow
def test_spark_failure_shows_its_error_without_the_traceback(folder: Path) -> None:
    log = r"print('WARN noise\nTraceback (most recent call last):\n  File x\nbad.Error: no topic', file=sys.stderr)"
    with Child(folder / "log", "obeys", 'print(\'{"spark": "4.3.0"}\')', log, "sys.exit(1)") as child:
        spark = SparkStep(child)
        assert spark.version() == "4.3.0"
        with pytest.raises(SparkFailed) as failed:
            spark.counts(lambda count: None)
    first, *rest = str(failed.value).splitlines()
    assert first == "Spark ended with the status 1: bad.Error: no topic"
    assert rest == ["It logged last:", "WARN noise", "bad.Error: no topic"]


@pytest.mark.slow
def test_spark_step_reports_progress_and_returns_counts(folder: Path) -> None:
    rows = '{"counts": [{"minute_ms": 60000, "room": "hall", "count": 3}]}'
    told: list[int] = []
    with Child(folder / "log", "obeys", f"print('{{\"messages\": 2}}'); print('{rows}')") as child:
        assert SparkStep(child).counts(told.append) == {(60_000, "hall"): 3}
    assert told == [2]
