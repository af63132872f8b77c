"""Run Spark's process and read its output. Its log is a file, whose end is shown if Spark fails."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from magnetar_cli.local_java import java_home_for_spark
from magnetar_cli.tour.child import Child
from magnetar_cli.tour.messaging import ProgressCallback

__all__ = ["SparkFailed", "SparkStep"]

# The first start of a JVM on a slow disk takes long.
_TIMEOUT_S: Final = 180.0
_SHOWN_LINES: Final = 15
_MAX_LINES: Final = 2000
# The last line of a Python traceback.
_ERROR: Final = re.compile(r"^[\w.]+(Error|Exception|Failed|NotFound|Refused|Lost)\b.*: ")


class SparkFailed(Exception):
    """Spark failed. The message has the error and the end of Spark's log."""


class SparkStep:
    """Spark's process, which runs the query."""

    def __init__(self, process: Child) -> None:
        self._process = process

    @classmethod
    @contextmanager
    def start(cls, url: str, topic: str, folder: Path) -> Iterator[SparkStep]:
        """Start the process, whose log is `spark.log` in the folder. Raise `NoJava`, or `ModuleNotFoundError` without
        PySpark."""
        if importlib.util.find_spec("pyspark") is None:
            raise ModuleNotFoundError("there is no pyspark", name="pyspark")
        environment = {
            "JAVA_HOME": str(java_home_for_spark(folder / "java")),
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LOCAL_DIRS": str(folder / "local"),
        }
        module = "magnetar_cli.tour.spark_query"
        with Child(folder / "spark.log", module, url, topic, str(folder), environment=environment) as process:
            yield cls(process)

    def wait_version(self) -> str:
        """Wait until Spark has started, and return its version."""
        return str(self._read_report()["spark"])

    def wait_counts(self, on_progress: ProgressCallback) -> Counter[tuple[int, str]]:
        """Wait for the end of the query, and return its counts by minute and room."""
        while "counts" not in (report := self._read_report()):
            on_progress(report["messages"])
        return Counter({(row["minute_ms"], row["room"]): row["count"] for row in report["counts"]})

    def _read_report(self) -> dict[str, Any]:
        try:
            line = self._process.read_line(_TIMEOUT_S)
        except TimeoutError as error:
            raise SparkFailed(f"Spark hangs: {error}. {self._format_log_end()}") from None
        if line is None:
            raise SparkFailed(f"Spark ended with the status {self._process.wait()}: {self._find_error()}")
        report: dict[str, Any] = json.loads(line)
        return report

    def _find_error(self) -> str:
        """Return the last line of the log with an error, and the end of the log."""
        errors = [line for line in self._read_log_lines() if _ERROR.match(line)]
        return f"{errors[-1] if errors else 'its log has no error'}\n{self._format_log_end()}"

    def _format_log_end(self) -> str:
        """Return the end of the log without tracebacks."""
        shown = [line for line in self._read_log_lines() if not line.startswith((" ", "\t", "Traceback"))]
        return "It logged last:\n" + "\n".join(shown[-_SHOWN_LINES:])

    def _read_log_lines(self) -> list[str]:
        return self._process.read_log_end(_MAX_LINES).splitlines()
