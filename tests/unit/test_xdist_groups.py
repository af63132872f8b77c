"""Which tests run on one worker."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.xdist_groups import group_of

PROJECT = Path(__file__).resolve().parents[2]


def test_groups_are_marks_of_whole_modules() -> None:
    """Marks elsewhere would not count."""
    for path in (PROJECT / "tests").rglob("test_*.py"):
        marks = len(re.findall(r"^[^#\n']*pytest\.mark\.xdist_group\(", path.read_text(), re.MULTILINE))
        assert marks == (group_of(path) is not None), path


def test_a_group_runs_on_one_worker(tmp_path: Path) -> None:
    pytest.importorskip("xdist")
    text = "import pytest\n{mark}\n@pytest.mark.parametrize('n', range(8))\ndef test_it(n):\n    pass\n"
    for name, group in (("one", "a"), ("two", "a"), ("free", "")):
        mark = f'pytestmark = [pytest.mark.xdist_group("{group}")]' if group else ""
        (tmp_path / f"test_{name}.py").write_text(text.format(mark=mark))
    (tmp_path / "conftest.py").write_text("from tests.conftest import pytest_xdist_make_scheduler\n")
    command = [sys.executable, "-m", "pytest", "-v", "-n", "2", "--dist", "loadgroup", "-p", "no:cacheprovider"]
    path = ":".join(path for path in sys.path if path)
    ended = subprocess.run(
        [*command, "-W", "ignore"],
        cwd=tmp_path,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": f"{PROJECT}:{path}"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    ran = re.findall(r"\[(gw\d)\].* test_(one|two|free)\.py", ended.stdout)
    assert len(ran) == 24, ended.stdout + ended.stderr
    assert len({worker for worker, name in ran if name != "free"}) == 1
