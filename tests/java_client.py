"""A stock client of Java: the program in `tests/java`, compiled against Pulsar's own library, and run.

    problems = run_java_checks(folder, java_client_jars(), "pulsar://127.0.0.1:6650", {"unload": unload})
    assert problems["Reading.fromAnId"] == ""

All of its checks are done at once, in one process. What only an administrator can do, or another client, they ask for
by name: the caller's functions do it.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

__all__ = ["Act", "run_java_checks"]

_SOURCES: Final = Path(__file__).with_name("java")
_COMPILING_S: Final = 60.0
_RUNNING_S: Final = 100.0
_MAX_CONCURRENT: Final = 8
# They live for seconds: to start fast is worth more than to run fast. The jars hold no processors of annotations.
_JAVA: Final = ("java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx768m")
_JAVAC: Final = ("javac", "-J-XX:TieredStopAtLevel=1", "-J-XX:+UseSerialGC", "-proc:none")

# Gets a check's arguments, and answers it.
Act = Callable[..., str]


def run_java_checks(folder: Path, jars: Path, url: str, acts: Mapping[str, Act], *names: str) -> dict[str, str]:
    """What is wrong, by the checks' names; empty: nothing. Without names all are done. Classes and what the client logs
    go to `folder`."""
    library = f"{jars}/*"
    classes = folder / "classes"
    sources = sorted(map(str, _SOURCES.glob("*.java")))
    subprocess.run([*_JAVAC, "-d", classes, "-cp", library, *sources], check=True, timeout=_COMPILING_S)
    with (folder / "java.log").open("wb") as log:
        process = subprocess.Popen(
            [*_JAVA, "-cp", os.pathsep.join((str(classes), library)), "Main", url, *names],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
    overdue = threading.Timer(_RUNNING_S, process.kill)
    overdue.start()
    try:
        with process, ThreadPoolExecutor(_MAX_CONCURRENT) as threads:
            return _results(process, acts, threads)
    finally:
        overdue.cancel()
        process.kill()


def _results(process: subprocess.Popen[str], acts: Mapping[str, Act], threads: ThreadPoolExecutor) -> dict[str, str]:
    problems = {}
    assert process.stdout is not None
    for line in process.stdout:
        message: dict[str, Any] = json.loads(line)
        if "check" in message:
            problems[message["check"]] = message["problem"]
        else:
            threads.submit(_answer, process, acts[message["ask"]], message)
    return problems


def _answer(process: subprocess.Popen[str], act: Act, request: Mapping[str, Any]) -> None:
    try:
        answer = act(*request["arguments"])
    except Exception as error:  # noqa: BLE001 (the requesting check reports it)
        answer = f"{type(error).__name__}: {error}".replace("\n", " ")
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError):  # the checks are over: their results are there, or the missing one shows
        # Nothing stays in a buffer that closing the pipe would write again.
        os.write(process.stdin.fileno(), f"{request['number']} {answer}\n".encode())
