"""Every mutant's patch fits the code as it is, and changes it; and its first line says what it breaks."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.mutants import PROJECT, apply, names, what_it_breaks


@pytest.mark.parametrize("name", names() or [pytest.param("", marks=pytest.mark.skip("there are no mutants yet"))])
def test_the_patch_applies(name: str, tmp_path: Path) -> None:
    assert len(what_it_breaks(name)) > 10
    for root in ("protos", "metadata", "bookie", "deploy"):
        shutil.copytree(PROJECT / root, tmp_path / root, ignore=shutil.ignore_patterns("__pycache__"))
    before = _sources(tmp_path)
    apply(tmp_path, name)
    assert _sources(tmp_path) != before


def _sources(tree: Path) -> dict[str, bytes]:
    return {str(path.relative_to(tree)): path.read_bytes() for path in tree.rglob("*.py")}
