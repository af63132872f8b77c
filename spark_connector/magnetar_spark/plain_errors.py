"""Errors as sentences, where Spark would show a stack of its own and ours.

Spark's Python workers send whatever is raised to the JVM as the text of its traceback, which the user finds inside of
the JVM's own. For what this source says on purpose (`SparkConnectorError`) and what brokers say (`MagnetarException`)
the sentence is all that there is to know, so Spark is asked to leave the traceback out: by the variable that it looks
at for that, in a process of its own, which ends after any error.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import Final

from magnetar.exceptions import MagnetarException
from magnetar_spark.errors import SparkConnectorError

__all__ = ["in_a_worker", "plainly"]

_HIDE: Final = "SPARK_HIDE_TRACEBACK"


@contextlib.contextmanager
def plainly() -> Iterator[None]:
    try:
        yield
    except (SparkConnectorError, MagnetarException):
        if in_a_worker():
            os.environ[_HIDE] = "1"
        raise


def in_a_worker() -> bool:
    """This process is one of Spark's, and not the user's."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return spec is not None and spec.name.startswith("pyspark.")
