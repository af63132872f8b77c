"""Spark's process, followed from outside: its JVM's noise goes to a file, which is shown where it fails."""

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
from magnetar_cli.tour.messaging import Tell

__all__ = ["SparkFailed", "SparkStep"]

# Its JVM may be started on a slow disk, and for the first time.
_SILENCE_S: Final = 180.0
_SHOWN_LINES: Final = 15
_MOST_LINES: Final = 2000
# As Python ends a traceback.
_ERROR: Final = re.compile(r"^[\w.]+(Error|Exception|Failed|NotFound|Refused|Lost)\b.*: ")


class SparkFailed(Exception):
    """The message tells why, as far as its log does, and where that is."""


class SparkStep:
    def __init__(self, process: Child) -> None:
        self._process = process

    @classmethod
    @contextmanager
    def start(cls, url: str, topic: str, folder: Path) -> Iterator[SparkStep]:
        """Starts it; its log is `spark.log` in the folder. Raises `NoJava`; `ModuleNotFoundError` without PySpark."""
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

    def version(self) -> str:
        """Of Spark, when it is there."""
        return str(self._next()["spark"])

    def counts(self, tell: Tell) -> Counter[tuple[int, str]]:
        """What the query counted, by minute and room."""
        while "counts" not in (said := self._next()):
            tell(said["messages"])
        return Counter({(row["minute_ms"], row["room"]): row["count"] for row in said["counts"]})

    def _next(self) -> dict[str, Any]:
        try:
            line = self._process.line(_SILENCE_S)
        except TimeoutError as error:
            raise SparkFailed(f"Spark hangs: {error}. {self._logged()}") from None
        if line is None:
            raise SparkFailed(f"Spark ended with the status {self._process.wait()}: {self._why()}")
        said: dict[str, Any] = json.loads(line)
        return said

    def _why(self) -> str:
        """The last line that names an error, and all else that was logged last."""
        named = [line for line in self._words() if _ERROR.match(line)]
        return f"{named[-1] if named else 'its log has no error'}\n{self._logged()}"

    def _logged(self) -> str:
        """Without the lines of tracebacks, which are long and say little to who did not write them."""
        said = [line for line in self._words() if not line.startswith((" ", "\t", "Traceback"))]
        return "It logged last:\n" + "\n".join(said[-_SHOWN_LINES:])

    def _words(self) -> list[str]:
        return self._process.last_words(_MOST_LINES).splitlines()
