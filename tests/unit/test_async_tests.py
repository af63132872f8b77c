"""Async tests are coroutines without wrappers: a wrapper hides a test's parameters, so that it can't take fixtures."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Final

import pytest

_TESTS: Final = Path(__file__).resolve().parents[1]
_ALLOWED: Final = ("pytest.mark.", "given(", "settings(", "examples(", "example(")


def _find_wrapped_tests(source: str) -> list[str]:
    return [
        f"{node.lineno}: @{decorator}"
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.AsyncFunctionDef) and node.name.startswith("test")
        for decorator in map(ast.unparse, node.decorator_list)
        if not decorator.startswith(_ALLOWED)
    ]


def test_async_tests_have_no_wrappers() -> None:
    found = {path.relative_to(_TESTS): _find_wrapped_tests(path.read_text()) for path in _TESTS.rglob("*.py")}
    assert len(found) > 100
    assert {path: tests for path, tests in found.items() if tests} == {}, "open the scene in a fixture or the test"


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("@scene()\nasync def test_it(of): ...", ["2: @scene()"]),
        ("class TestIt:\n    @on_disk\n    async def test_it(self, disk): ...", ["3: @on_disk"]),
        ("async def test_it():\n    @scene()\n    async def test(of): ...\n    await test()", ["3: @scene()"]),
        ("@pytest.mark.slow\n@given(st.none())\n@settings(max_examples=2)\nasync def test_it(n): ...", []),
        ("@asynccontextmanager\nasync def opened(): yield", []),
    ],
)
def test_a_wrapper_is_found(source: str, found: list[str]) -> None:
    assert _find_wrapped_tests(source) == found
