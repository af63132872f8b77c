"""What the guide shows of a cluster on this machine, from its start to its end; nothing of it is left."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

import pytest

from magnetar_cli.cluster import LocalCluster, NoCluster
from magnetar_cli.local_java import NoJava, find_java
from tests.guide import Block, Interpreter, blocks, command_lines
from tests.shell import Shell

# Of those that are shown: what anybody runs first. Each is a process of its own, which takes a second; all of them are
# taken apart in test_guide.py, and what they do is shown by tests of their own.
_RUN = (
    "magnetar cluster up",
    "magnetar cluster status",
    "magnetar brokers list",
    "magnetar bundles find",
    "magnetar cluster kill broker-1",
    "magnetar ledgers write",
    "magnetar ledgers show",
    "magnetar ledgers read",
    "magnetar cluster down",
)
# A ledger's number in the guide; here it is the printed one.
_SHOWN_NUMBER = "9"


def _shown() -> list[Block]:
    """Of the page on clusters and, before its end, of that on ledgers: python and command lines."""
    kinds = ("sh cluster", "python")
    return [block for name in ("deploy/README.md", "bookie/README.md") for block in blocks(name) if block.kind in kinds]


def test_there_are_examples() -> None:
    lines = [line for block in _shown() if block.kind == "sh cluster" for line in command_lines(block)]
    assert [start for start in _RUN if not any(line.startswith(start) for line in lines)] == []
    assert len([block for block in _shown() if "LocalCluster" in block.text]) == 2


@pytest.mark.slow
@pytest.mark.timeout(600)  # seconds by itself, minutes on a machine with other work
def test_local_cluster_examples_in_guide_run(tmp_path: Path) -> None:
    """Some command lines of these pages, as they stand there, and the examples where they belong."""
    try:
        find_java()
    except NoJava as error:
        pytest.skip(str(error))
    outputs: dict[str, str] = {}
    number, wipe = "", ""
    shell = Shell(tmp_path)
    folder = tmp_path / ".magnetar"
    try:
        with Interpreter(tmp_path, {}) as interpreter:
            for block in _shown():
                if block.kind == "python":
                    interpreter.run(block, block.document, block.text)
                    continue
                for line in command_lines(block):
                    start = next((start for start in _RUN if line.startswith(start)), None)
                    if start == "magnetar cluster down":
                        wipe = line  # the page's last example needs it yet
                    elif start is not None:
                        outputs[start] = shell.run(line.replace(f" {_SHOWN_NUMBER} ", f" {number} "), block)
                    if start == "magnetar ledgers write":
                        (number,) = re.findall(r"ledger (\d+):", outputs[start])
            assert interpreter.close() == 0
            assert interpreter.logged == ""
        outputs["magnetar cluster down"] = shell.run(wipe, _shown()[-1])
        assert not folder.exists()
    finally:
        with contextlib.suppress(NoCluster):
            LocalCluster(folder).down(wipe=True)
    assert set(outputs) == set(_RUN)
    assert outputs["magnetar cluster status"].splitlines()[-1].startswith("service URL: magnetar://127.0.0.1:")
    assert "broker-2" in outputs["magnetar brokers list"]
    assert "broker-" in outputs["magnetar bundles find"]
    assert outputs["magnetar ledgers show"].count("holds 5000 of 5000") >= 2  # the third may be in flight
    assert "5000 entries read" in outputs["magnetar ledgers read"]
