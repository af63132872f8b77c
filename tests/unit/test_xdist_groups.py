"""Which tests run on one worker."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.xdist_groups import LONG_GROUPS, group_of

PROJECT = Path(__file__).resolve().parents[2]


def test_groups_are_marks_of_whole_modules() -> None:
    """Marks elsewhere would not count."""
    for path in (PROJECT / "tests").rglob("test_*.py"):
        marks = len(re.findall(r"^[^#\n']*pytest\.mark\.xdist_group\(", path.read_text(), re.MULTILINE))
        assert marks == (group_of(path) is not None), path


def test_each_long_group_is_there() -> None:
    groups = {group_of(path) or str(path.relative_to(PROJECT)) for path in (PROJECT / "tests").rglob("test_*.py")}
    assert not set(LONG_GROUPS) - groups
    assert len(LONG_GROUPS) == len(set(LONG_GROUPS))


def test_a_long_group_begins_before_one_of_more_tests(tmp_path: Path) -> None:
    pytest.importorskip("xdist")
    for group, tests in (("short", 5), ("shorter", 4), (LONG_GROUPS[1], 3), (LONG_GROUPS[0], 2)):
        mark = f'pytestmark = [pytest.mark.xdist_group("{group}")]'
        functions = "".join(f"def test_{number}(): pass\n" for number in range(tests))
        (tmp_path / f"test_{group.replace(' ', '_')}.py").write_text(f"import pytest\n{mark}\n{functions}")
    ran = run_in_parallel(tmp_path, "-n", "1")
    begun = list(dict.fromkeys(name for _, name in ran))
    assert begun == [LONG_GROUPS[0], LONG_GROUPS[1].replace(" ", "_"), "short", "shorter"]


def test_a_group_runs_on_one_worker(tmp_path: Path) -> None:
    pytest.importorskip("xdist")
    text = "import pytest\n{mark}\n@pytest.mark.parametrize('n', range(8))\ndef test_it(n):\n    pass\n"
    for name, group in (("one", "a"), ("two", "a"), ("free", "")):
        mark = f'pytestmark = [pytest.mark.xdist_group("{group}")]' if group else ""
        (tmp_path / f"test_{name}.py").write_text(text.format(mark=mark))
    ran = run_in_parallel(tmp_path, "-n", "2")
    assert len(ran) == 24
    assert len({worker for worker, name in ran if name != "free"}) == 1


def run_in_parallel(folder: Path, *options: str) -> list[tuple[str, str]]:
    """Run the folder's tests under our scheduling; return each one's worker and module, in the order of results."""
    (folder / "conftest.py").write_text("from tests.conftest import pytest_xdist_make_scheduler\n")
    command = [sys.executable, "-m", "pytest", "-v", *options, "--dist", "loadgroup", "-p", "no:cacheprovider"]
    path = ":".join(path for path in sys.path if path)
    ended = subprocess.run(
        [*command, "-W", "ignore"],
        cwd=folder,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": f"{PROJECT}:{path}"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    ran: list[tuple[str, str]] = re.findall(r"\[(gw\d)\].* test_(\w+)\.py", ended.stdout)
    assert ran, ended.stdout + ended.stderr
    return ran
