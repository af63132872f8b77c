"""Finding a Java."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from magnetar_cli import local_java


def _fake(folder: Path, version: str) -> Path:
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    java.chmod(0o755)
    return java


@pytest.mark.parametrize(
    ("version", "taken"), [("17.0.1", True), ("21", True), ("11.0.2", False), ("1.8.0_392", False)]
)
def test_java_home_is_used_only_if_it_is_new_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, taken: bool
) -> None:
    java = _fake(tmp_path, version)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", "")
    assert local_java.find_installed_java() == (java if taken else None)


def test_without_any_the_way_out_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(local_java, "find_packaged_java", lambda: None)
    with pytest.raises(local_java.NoJava, match="pip install"):
        local_java.find_java()


def test_spark_java_wrapper_drops_the_missing_module_option(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = tmp_path / "it's here" / "java"
    java.parent.mkdir()
    java.write_text('#!/bin/sh\nfor each in "$@"; do echo "<$each>"; done\n')
    java.chmod(0o755)
    monkeypatch.setattr(local_java, "find_installed_java", lambda: None)
    monkeypatch.setattr(local_java, "find_packaged_java", lambda: java)
    home = local_java.java_home_for_spark(tmp_path / "home")
    command = [str(home / "bin" / "java"), "-Xmx1g", "--add-modules=jdk.incubator.vector", "two words", ""]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    assert ended.stdout == "<-Xmx1g>\n<two words>\n<>\n"
