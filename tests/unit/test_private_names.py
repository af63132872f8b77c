"""Tests use private names of other modules nowhere but in tests/unit, and there fewer and fewer."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Final

import pytest

from tests.unit.private_rules import find_private_uses, find_private_uses_in

_PROJECT: Final = Path(__file__).resolve().parents[2]
# Uses of private names in tests/unit, by folder. A number may only fall.
_LEFT: Final = {"bookie": 24, "broker": 118, "cli": 5, "client": 37, "metadata": 7, "spark": 43, "wire": 8, "": 1}


def test_only_unit_tests_use_private_names_and_within_limits() -> None:
    found = find_private_uses(_PROJECT)
    elsewhere = {path: uses for path, uses in found.items() if not path.startswith("tests/unit/")}
    assert elsewhere == {}, "test through the public face, or move the test to tests/unit"
    left: Counter[str] = Counter()
    for path, uses in found.items():
        folder, _, inside = path.removeprefix("tests/unit/").partition("/")
        left[folder if inside else ""] += len(uses)
    assert left == _LEFT, "where there are more, test through the public face; where there are fewer, lower the number"


_BASE: Final = """
class Base:
    def __init__(self):
        self._own = 1
"""


@pytest.mark.parametrize(
    ("source", "uses"),
    [
        ("x = thing._name", ["1: thing._name"]),
        ("thing._name = 1", ["1: thing._name"]),
        ("del thing.part._name", ["1: thing.part._name"]),
        ("x = thing._name.other", ["1: thing._name"]),
        ("from magnetar_wire.frame import _name", ["1: from magnetar_wire.frame import _name"]),
        ("from tests.other import _helper", ["1: from tests.other import _helper"]),
        ("setattr(thing, '_name', 1)", ["1: setattr('_name')"]),
        ("monkeypatch.setattr('magnetar_wire.frame._name', 1)", ["1: setattr('_name')"]),
        ("from magnetar_wire.frame import F\nclass C(F):\n    def f(self): self._name()", ["3: self._name"]),
        ("from tests.base import Base\ndef f(base: Base): base._own = 1", ["2: base._own"]),
        ("class P(Protocol):\n    _name: int\nx = thing._name", ["3: thing._name"]),
        ("import sys\nsys._getframe()\nrow._replace(a=1)\nthing.__dict__", []),
        ("from magnetar._acknowledging.pending_acks import PendingAcks", []),
        ("class C:\n    def __init__(self): self._name = 1\n    def f(self, other): return other._name", []),
        ("from tests.base import Base\nclass C(Base):\n    def f(self): return self._own", []),
        ("from tests import base\nclass C(base.Base[int]):\n    def f(self): return self._own", []),
        ("x = {'_name': 1}\nprint('_name')", []),
    ],
)
def test_a_use_of_a_private_name_is_found(source: str, uses: list[str]) -> None:
    found = find_private_uses_in({"tests/base.py": _BASE, "tests/planted.py": source})
    assert found.get("tests/planted.py", []) == uses
    assert "tests/base.py" not in found
