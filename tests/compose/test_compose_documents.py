"""The blocks of the documents that need Docker (`sh docker`) do what they say, line by line, as a newcomer types them.

Where they say `docker-compose` this project's is called, and names and ports that stand there are replaced by others:
nothing else on the machine is touched.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import pytest

import magnetar
from tests.compose.compose_project import PARTS, ComposeProject
from tests.guide import DOCUMENTS, PROJECT, Block, blocks, command_lines

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

_OF_DOCKER: Final = "sh docker"
_SHOWN: Final = "magnetar://localhost:6652,localhost:6653"
_IN_DOCUMENTS: Final = [document for document in DOCUMENTS if any(one.kind == _OF_DOCKER for one in blocks(document))]
_RECEIVE_MS: Final = 60_000


@pytest.fixture
def alone(project: ComposeProject) -> Iterator[str]:
    """The name of a container, and of a volume, that the documents make besides the project's."""
    name = f"{project.name}-alone"
    yield name
    for kind in ("container", "volume"):
        subprocess.run(["docker", kind, "rm", "--force", name], capture_output=True, check=False)


@pytest.mark.parametrize("document", _IN_DOCUMENTS)
def test_docker_examples_in_document_run(project: ComposeProject, tmp_path: Path, document: str, alone: str) -> None:
    environment = {**os.environ, "PATH": f"{_own_compose(project, tmp_path)}:{os.environ['PATH']}"}
    replaced = _as_ours(project, alone)
    folder = PROJECT
    for block in blocks(document):
        for line in command_lines(block) if block.kind == _OF_DOCKER else []:
            if line.startswith("cd "):
                folder /= line.removeprefix("cd ")
            else:
                _run(project, block, line, replaced, folder, environment)
    project.up()


def test_the_python_beside_them_works(project: ComposeProject) -> None:
    (block,) = [block for block in blocks("deploy/compose.md") if block.kind == "python"]
    assert _SHOWN in block.text
    with magnetar.Client(project.url) as client:
        consumer = client.subscribe("my-topic", "sees")
        exec(block.text.replace(_SHOWN, project.url), {})
        assert consumer.receive(_RECEIVE_MS).data() == b"hello"


def _own_compose(project: ComposeProject, folder: Path) -> Path:
    """Where a `docker-compose` is that has this project's name and settings."""
    program = shutil.which(project.command[0])
    assert program is not None
    command = shlex.join([program, *project.command[1:], "-p", project.name, "--env-file", str(project.settings)])
    script = folder / "docker-compose"
    script.write_text(f'#!/bin/sh\nexec {command} "$@"\n')
    script.chmod(0o755)
    return folder


def _as_ours(project: ComposeProject, alone: str) -> Mapping[str, str]:
    """Patterns in the documents, and their replacements here."""
    return {
        r"(?<=--name )magnetar\b|(?<=rm -f )magnetar\b": alone,
        r"\bmagnetar-data\b": alone,
        r"(?<=-t )magnetar\b|(?<=--rm )magnetar\b|(?<=/var/lib/magnetar )magnetar\b": project.variables[
            "MAGNETAR_IMAGE"
        ],
        r"127\.0\.0\.1:(?:6650|6652|8080)(?=:)": "127.0.0.1:0",
    }


def _run(
    project: ComposeProject,
    block: Block,
    line: str,
    replaced: Mapping[str, str],
    folder: Path,
    environment: Mapping[str, str],
) -> None:
    for pattern, ours in replaced.items():
        line = re.sub(pattern, ours, line)
    done = subprocess.run(
        line,
        shell=True,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{block}: {line}\n{done.stdout}{done.stderr}"
    if " up -d" in line:
        project.wait_healthy(*PARTS)
