"""What the README and the guide show can be done as it stands there, on a standalone.

Spark's examples are in test_guide_spark.py, those of a cluster in test_guide_cluster.py, Docker's in tests/compose.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.core import TyperGroup
from typer.main import get_command

from magnetar_cli.command import app
from magnetar_testing.standalone_process import StandaloneProcess
from tests.guide import (
    DOCUMENTS,
    PROJECT,
    SHOWN_PULSAR_URL,
    SHOWN_URL,
    Block,
    Interpreter,
    blocks,
    command_lines,
    words_of,
)
from tests.shell import Shell

_KINDS = {
    "python",
    "python test",
    "python noexec",
    "sh",
    "sh cluster",
    "sh docker",
    "sh noexec",
    "json",
    "toml",
    "toml test",
    "",
}
# Their examples need nothing but a standalone, or nothing at all. README.md's have Spark among them.
_ON_A_STANDALONE = [
    "client/README.md",
    "client/pulsar_clients.md",
    "client/administration.md",
    "client/schemas.md",
    "metadata/README.md",
    "protos/README.md",
    "deploy/README.md",
    "deploy/command_line.md",
]
_ALL = [block for document in DOCUMENTS for block in blocks(document)]
_COMMANDS = [(block, line) for block in _ALL if block.kind.startswith("sh") for line in command_lines(block)]
_OURS = [(block, words) for block, line in _COMMANDS if (words := words_of(line, "magnetar")) is not None]
_MADE = [(block, words) for block, line in _COMMANDS if (words := words_of(line, "make")) is not None]


def test_every_block_declares_how_it_is_run() -> None:
    assert [f"{block}: {block.kind}" for block in _ALL if block.kind not in _KINDS] == []
    pictures = [block for block in _ALL if not block.kind]
    assert [
        str(block) for block in pictures if re.search(r"^(magnetar|make|docker|pip|python) ", block.text, re.M)
    ] == []
    assert len([block for block in _ALL if block.kind == "python"]) >= 20
    assert len(_OURS) >= 25


def test_every_document_of_a_folder_is_in_the_guide() -> None:
    """A new document must be added to README.md, and here. Those for contributors are in ARCHITECTURE.md."""
    architecture = (PROJECT / "ARCHITECTURE.md").read_text()
    readme = (PROJECT / "README.md").read_text()
    assert [name for name in DOCUMENTS[1:] if f"]({name})" not in readme] == []
    there = [
        path
        for folder in ("client", "deploy", "bookie", "metadata", "protos", "spark_connector", "broker")
        for path in (PROJECT / folder).glob("*.md")
    ]
    internals = {path for path in there if path.name == "internals.md"}
    assert [path for path in internals if f"]({path.relative_to(PROJECT)})" not in architecture] == []
    assert {str(path.relative_to(PROJECT)) for path in set(there) - internals} == set(DOCUMENTS) - {"README.md"}


@pytest.mark.parametrize(("block", "words"), _OURS, ids=[f"{block} {' '.join(words[:3])}" for block, words in _OURS])
def test_a_shown_command_exists_with_its_options(block: Block, words: list[str]) -> None:
    """It is taken apart as if it were to be run."""
    here, context = get_command(app), None
    while True:
        context = here.make_context(here.name, list(words), parent=context, resilient_parsing="--options" in words)
        if not isinstance(here, TyperGroup):
            break
        _, found, words = here.resolve_command(context, [*context._protected_args, *context.args])
        assert found is not None, block
        here = found


@pytest.mark.parametrize(("block", "words"), _MADE, ids=[" ".join(words) for _, words in _MADE])
def test_a_shown_target_exists(block: Block, words: list[str]) -> None:
    ended = subprocess.run(["make", "-n", *words], cwd=PROJECT, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 0, (block, ended.stderr)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneProcess]:
    with StandaloneProcess(tmp_path_factory.mktemp("guide") / "data") as running:
        yield running


@pytest.fixture
def interpreter(tmp_path_factory: pytest.TempPathFactory, server: StandaloneProcess) -> Iterator[Interpreter]:
    """A Python process for each document, as its reader would have. It must end gracefully, and log nothing."""
    with Interpreter(tmp_path_factory.mktemp("examples"), {"MAGNETAR_URL": server.service_url}) as process:
        yield process
        assert process.close() == 0
        assert process.logged == ""


@pytest.mark.slow
@pytest.mark.parametrize("document", _ON_A_STANDALONE)
def test_examples_in_document_run(
    document: str, server: StandaloneProcess, interpreter: Interpreter, tmp_path: Path
) -> None:
    shell = Shell(tmp_path, server)
    for block in blocks(document):
        if block.kind == "python" and "LocalCluster" not in block.text:
            text = block.text.replace(SHOWN_URL, server.service_url).replace(SHOWN_PULSAR_URL, server.pulsar_url)
            interpreter.run(block, document, text)
        elif block.kind == "sh":
            for line in command_lines(block):
                shell.run(line, block)
    assert interpreter.logged == ""


@pytest.mark.slow
def test_make_run_is_the_tour_in_the_environment_that_there_is(tmp_path: Path) -> None:
    """With ONCE=1 it ends by itself; the status is the tour's."""
    environment = tmp_path / "venv"
    (environment / "bin").mkdir(parents=True)
    (environment / ".can-run").touch()
    command = environment / "bin" / "magnetar"
    command.write_text('#!/bin/sh\necho "arguments: $*"\nexit ${STATUS:-0}\n')
    command.chmod(0o755)
    for status, once, output in (
        (0, "1", "arguments: tour --once"),
        (0, "", "arguments: tour"),
        (1, "1", "arguments: tour --once"),
    ):
        # Below another make, as in `make test`, it would name the folder it enters.
        make = ["make", "--no-print-directory", "run", f"VENV={environment}", f"ONCE={once}"]
        ended = subprocess.run(
            make,
            cwd=PROJECT,
            env={**os.environ, "STATUS": str(status), "MAKEFLAGS": ""},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert (ended.returncode != 0) == (status != 0), ended.stderr
        assert ended.stdout.strip() == output


def test_command_without_subcommand_lists_subcommands(tmp_path: Path) -> None:
    ended = _ran(tmp_path, "-m", "magnetar_cli")
    assert ended.returncode == 2
    assert "tour" in ended.stdout
    assert "tour" in _ran(tmp_path, "-m", "magnetar_cli", "--help").stdout


def test_the_help_is_there_before_anything_heavy_is_imported(tmp_path: Path) -> None:
    code = (
        "import sys, magnetar_cli.__main__ as command\n"
        "sys.argv = ['magnetar', '--help']\n"
        "try:\n    command.main()\n"
        "except SystemExit as ended:\n    assert ended.code == 0\n"
        "heavy = ('grpc', 'google.protobuf', 'rocksdict', 'kazoo', 'uvicorn', 'pydantic', 'magnetar_bookie')\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    ended = _ran(tmp_path, "-c", code)
    assert ended.stdout.splitlines()[-1] == "[]", ended.stderr


def _ran(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "error", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=110, check=False)
