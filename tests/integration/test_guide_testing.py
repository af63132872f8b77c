"""The guide's page about testing an application: its test files pass in a project outside of the repository."""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
from pathlib import Path

import pytest

from magnetar_cli.child_environment import source_roots
from tests.guide import blocks

pytestmark = pytest.mark.slow

_PAGE = "deploy/testing.md"


def _check_installed() -> None:
    """Fail with instructions if this environment's installation of Magnetar is older than the plugin."""
    plugins = {plugin.name: plugin.value for plugin in importlib.metadata.entry_points(group="pytest11")}
    if plugins.get("magnetar") != "magnetar_testing.pytest_plugin":
        pytest.fail("pytest finds no plugin of Magnetar: install this checkout again, `pip install -e '.[dev]'`")


def test_an_application_outside_the_repository_tests_itself(tmp_path: Path) -> None:
    _check_installed()
    tests = [block for block in blocks(_PAGE) if block.kind == "python test"]
    for number, block in enumerate(tests):
        (tmp_path / f"test_{number}.py").write_text(block.text)
    (settings,) = (block.text for block in blocks(_PAGE) if block.kind == "toml test")
    (tmp_path / "pyproject.toml").write_text(settings + 'filterwarnings = ["error"]\n')
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(source_roots())},
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert f"{len(tests)} passed" in ended.stdout
    assert ended.stderr == ""


def test_the_pages_first_test_has_ten_lines_or_so() -> None:
    first = next(block for block in blocks(_PAGE) if block.kind == "python test")
    assert len([line for line in first.text.splitlines() if line.strip()]) <= 10
