"""The log of a process, as text and as JSON."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator

import pytest

from magnetar_wire.process.logs import log_to_stderr


@pytest.fixture(autouse=True)
def _as_it_was() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def test_a_structured_line_is_one_object_and_can_not_be_forged(capsys: pytest.CaptureFixture[str]) -> None:
    """ADM-2."""
    log_to_stderr("INFO", "json")
    log = logging.getLogger("a.b")
    log.warning("from %s", "outside\n{}\u2028\x1b[2J", extra={"topic": "orders", "entries": 3})
    try:
        raise ValueError("two\nlines")
    except ValueError:
        log.exception("broke off")
    first, second = (json.loads(line) for line in capsys.readouterr().err.splitlines())
    assert first["time"].endswith("Z")
    assert (first["level"], first["logger"]) == ("WARNING", "a.b")
    assert first["message"] == "from outside\n{}\u2028\x1b[2J"
    assert (first["topic"], first["entries"]) == ("orders", 3)
    assert "ValueError: two\nlines" in second["trace"]
    assert "taskName" not in first
