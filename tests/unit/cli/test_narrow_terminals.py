"""Output fits 80 columns, and names are not truncated."""

from __future__ import annotations

import contextlib
import io
import re

import pytest

from magnetar_cli.administration.stats_views import SUBSCRIPTION_COLUMNS
from magnetar_cli.output import print_rows
from magnetar_cli.perf.report import Meter, Report


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True

    @property
    def shown(self) -> str:
        """Without what makes a header bold."""
        return re.sub(r"\x1b\[[0-9;]*m", "", self.getvalue())


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> _Terminal:
    shown = _Terminal()
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    return shown


def test_names_in_tables_are_folded_and_whole(terminal: _Terminal) -> None:
    topic = "persistent://public/default/a-name-that-is-rather-long-partition-12"
    with contextlib.redirect_stdout(terminal):
        print_rows(
            ("topic", "broker", "address", "bundle"),
            [(topic, "broker-1", "10.20.30.40:6652", "0x0_0x4")],
            as_json=False,
        )
    lines = terminal.shown.splitlines()
    assert max(map(len, lines)) <= 80
    assert "…" not in terminal.shown
    # The first column goes on in the lines below.
    width = lines[0].index("broker")
    assert "".join(line[:width].strip() for line in lines[1:]) == topic


def test_headers_are_whole_too(terminal: _Terminal) -> None:
    with contextlib.redirect_stdout(terminal):
        print_rows(
            SUBSCRIPTION_COLUMNS,
            [("s" * 30, "EXCLUSIVE", 1_000_000, 1_000_000, 12_345, 3, "no consumer")],
            as_json=False,
        )
    assert "…" not in terminal.shown


def _measured() -> Report:
    meter = Meter()
    meter.count(643_210, 64_321_000, 0.01234)
    meter.observe(1.2345, 10)
    meter.last_at = meter.began + 1
    return Report(meter, as_json=False)


def test_a_second_of_a_measurement_is_one_line(terminal: _Terminal) -> None:
    with contextlib.redirect_stdout(terminal):
        _measured().print_total()
    total = terminal.shown.splitlines()[-1]
    assert len(total) <= 80
    assert "643,210 messages/s" in total
    assert [name for name in ("p50", "p95", "p99", "p99.9", "max") if f"{name} " in total] == ["p50", "p99", "max"]


def test_elsewhere_it_has_all_percentiles(capsys: pytest.CaptureFixture[str]) -> None:
    _measured().print_total()
    total = capsys.readouterr().out.splitlines()[-1]
    assert all(f"{name} " in total for name in ("p50", "p95", "p99", "p99.9", "max"))
