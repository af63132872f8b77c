"""The recorded files of the admin calls get additions, and nothing else unless it is accepted."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.admin_records import find_difference, update_records

_RECORDED = "admin.peek A B\nadmin.skip A B\n"


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    path = tmp_path / "recorded.txt"
    path.write_text(_RECORDED)
    return path


def test_added_lines_are_recorded(recorded: Path) -> None:
    now = "admin.new A B\nadmin.peek A B\nadmin.rest A B\nadmin.skip A B\n"
    difference = find_difference(recorded, now)
    assert "+admin.new A B" in difference
    assert "`python client/generate_admin.py`" in difference
    assert update_records({recorded: lambda: now}, accept=False) == []
    assert recorded.read_text() == now
    assert not find_difference(recorded, now)


@pytest.mark.parametrize(
    "now", ["admin.peek A B\n", "admin.peek A C\nadmin.skip A B\n", "admin.new A B\nadmin.skip A B\n"]
)
def test_changed_and_removed_lines_are_recorded_only_if_accepted(recorded: Path, now: str) -> None:
    """A name on the wire, or a signature, is not lost by generating the code again."""
    (difference,) = update_records({recorded: lambda: now}, accept=False)
    assert "-admin." in difference
    assert "`python client/generate_admin.py --accept`" in difference
    assert recorded.read_text() == _RECORDED
    assert update_records({recorded: lambda: now}, accept=True) == []
    assert recorded.read_text() == now
