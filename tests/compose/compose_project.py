"""deploy/docker-compose.yml as a project of its own, for tests, through testcontainers.

    with ComposeProject.made(folder) as project:        # built and healthy
        project.url                                     # for clients on this machine
        project.kill("bookie-2")                        # kill -9, from outside; what follows is the engine's affair
        project.wait_healthy("bookie-2")

Project, ports and images' tags are nobody else's. Containers, volumes, networks and those tags are removed at the end,
however that comes; layers that the engine keeps as its cache stay, so that the next build takes seconds.

testcontainers calls `docker compose`; where that is not there but `docker-compose` (1.29) is, this class does.
"""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import subprocess
import time
import uuid
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import pytest
from testcontainers.compose import DockerCompose

from magnetar_cli.cluster.ports import free_port
from magnetar_wire.process.exit_status import ExitStatus

__all__ = ["BOOKIES", "BROKERS", "PARTS", "ComposeProject", "compose_command", "docker"]

FOLDER: Final = Path(__file__).resolve().parents[2] / "deploy"
BOOKIES: Final = ("bookie-1", "bookie-2", "bookie-3")
BROKERS: Final = ("broker-1", "broker-2")
PARTS: Final = ("zookeeper", *BOOKIES, *BROKERS)
_PORTS: Final = (
    *(f"BOOKIE_{number}_PORT" for number in (1, 2, 3)),
    *(f"BROKER_{number}{kind}_PORT" for number in (1, 2) for kind in ("", "_PULSAR", "_HTTP")),
)
_HEALTHY_S: Final = 180.0
_LOOK_S: Final = 0.25
# Run in a container that sees the engine's processes: inside its own the process has the number 1, and is safe.
_KILL: Final = "import os, signal, sys; os.kill(int(sys.argv[1]), signal.SIGKILL)"
_LINES: Final = "2000"


def docker(*arguments: str) -> str:
    """Run `docker`, and return its output."""
    done = subprocess.run(["docker", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"docker {' '.join(arguments)}: {done.stderr}"
    return done.stdout.strip()


def compose_command() -> list[str]:
    """The command of compose here. Skips with a reason if there is none."""
    if shutil.which("docker") is None:
        pytest.skip("there is no docker on the PATH")
    info = subprocess.run(["docker", "info"], capture_output=True, text=True, check=False)
    if info.returncode:
        pytest.skip(f"no engine answers: {info.stderr.strip()}")
    if subprocess.run(["docker", "compose", "version"], capture_output=True, check=False).returncode == 0:
        return ["docker", "compose"]
    if shutil.which("docker-compose") is not None:
        return ["docker-compose"]
    pytest.skip("there is neither `docker compose` nor docker-compose")


class ComposeProject(DockerCompose):
    def __init__(self, command: list[str], env_file: Path, variables: Mapping[str, str]) -> None:
        # `docker compose`, or docker-compose.
        self.command = command
        self.name = env_file.stem
        # All that .env could hold.
        self.settings = env_file
        self.variables = dict(variables)
        env_file.write_text("".join(f"{name}={value}\n" for name, value in variables.items()))
        super().__init__(str(FOLDER), "docker-compose.yml", env_file=str(env_file), wait=False)

    @classmethod
    @contextlib.contextmanager
    def made(cls, folder: Path) -> Iterator[ComposeProject]:
        """Build the project, and yield it when it is healthy. Remove it at the end."""
        command = compose_command()
        name = f"magnetar-test-{uuid.uuid4().hex[:8]}"
        ports: list[int] = []
        for _ in _PORTS:
            ports.append(free_port(ports))
        variables = {
            **{variable: str(port) for variable, port in zip(_PORTS, ports, strict=True)},
            "MAGNETAR_IMAGE": f"{name}:server",
            "SPARK_JOB_IMAGE": f"{name}:spark-job",
        }
        project = cls(command, folder / f"{name}.env", variables)
        try:
            project.compose("build", "bookie-1")
            project.up()
            yield project
        finally:
            project.remove()

    @cached_property
    def compose_command_property(self) -> list[str]:
        assert isinstance(self.compose_file_name, list)
        assert isinstance(self.env_file, list)
        files = [argument for file in self.compose_file_name for argument in ("-f", file)]
        return [*self.command, "-p", self.name, *files, "--env-file", *self.env_file]

    @property
    def url(self) -> str:
        """Both brokers, as this machine reaches them."""
        return "magnetar://" + ",".join(f"localhost:{self.variables[f'BROKER_{i}_PORT']}" for i in (1, 2))

    @property
    def pulsar_url(self) -> str:
        """The same for Pulsar's clients."""
        return "pulsar://" + ",".join(f"localhost:{self.variables[f'BROKER_{i}_PULSAR_PORT']}" for i in (1, 2))

    def compose(self, *arguments: str) -> str:
        """Run `docker-compose`, and return its output."""
        return self._run_command([*self.compose_command_property, *arguments]).stdout.decode()

    def up(self, *arguments: str) -> None:
        """Everything, or these; returns when it is healthy."""
        self.compose(*arguments, "up", "--detach")
        self.wait_healthy(*PARTS)

    def down(self) -> None:
        """All containers go; the volumes stay."""
        self.compose("--profile", "spark", "down")

    def remove(self) -> None:
        """Remove all that is left of it."""
        self.compose("--profile", "spark", "down", "--volumes", "--remove-orphans")
        for image in (self.variables["MAGNETAR_IMAGE"], self.variables["SPARK_JOB_IMAGE"]):
            subprocess.run(["docker", "image", "rm", image], capture_output=True, check=False)

    def inspected(self, service: str) -> dict[str, Any]:
        """Its container, running or not, as the engine sees it."""
        labels = (f"com.docker.compose.project={self.name}", f"com.docker.compose.service={service}")
        filters = [argument for label in labels for argument in ("--filter", f"label={label}")]
        found: dict[str, Any] = json.loads(docker("inspect", docker("ps", "--all", "--quiet", *filters)))[0]
        return found

    def health(self, service: str) -> str:
        """Return the state of its health check: starting, healthy or unhealthy."""
        state = self.inspected(service)["State"]
        return str(state["Health"]["Status"]) if state["Running"] else "not running"

    def wait_healthy(self, *services: str) -> None:
        deadline = time.monotonic() + _HEALTHY_S
        while waits := {one: health for one in services if (health := self.health(one)) != "healthy"}:
            assert time.monotonic() < deadline, f"not healthy: {waits}\n{self.logs()}"
            time.sleep(_LOOK_S)

    def kill(self, service: str) -> None:
        """kill -9 of what runs in it, as if it had died by itself: unlike `docker kill`, which the engine takes for a
        wish that it stay down."""
        before = self.inspected(service)
        own = ["--rm", "--pid", "host", "--user", "0", "--network", "none", "--entrypoint", "python3"]
        docker("run", *own, self.variables["MAGNETAR_IMAGE"], "-c", _KILL, str(before["State"]["Pid"]))
        deadline = time.monotonic() + _HEALTHY_S
        while self.inspected(service)["RestartCount"] == before["RestartCount"]:
            assert time.monotonic() < deadline, f"{service} was not started again"
            time.sleep(_LOOK_S)

    def stop(self, down: bool = True) -> None:
        """testcontainers' name for it."""
        self.remove() if down else self.down()

    def stop_one(self, service: str) -> ExitStatus:
        """Stop it gracefully, and return its exit status."""
        self.compose("stop", service)
        return ExitStatus(self.inspected(service)["State"]["ExitCode"])

    def logs(self, *services: str) -> str:
        """Without names and colours in front where it is of one."""
        output = self.compose("logs", "--no-color", "--tail", _LINES, *services)
        return re.sub(r"(?m)^[^|\n]*\| ?", "", output) if len(services) == 1 else output
