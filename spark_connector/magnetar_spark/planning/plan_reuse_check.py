"""Refuses a second query on a DataFrame whose filters were pushed down: Spark would give it the first one's rows.

Spark 4.3 keeps one plan for each `load()` of a Python source, and filters that are pushed replace it. So of
`sales = load()` the query `sales.filter("index < 10").count()` leaves a plan behind that a later `sales.count()` reads,
which has no filter to push; and of two different filters in one query, such as a join of the two, both sides read what
the second one planned. Rows are missing, and Spark does not notice.

A source sees three things, and each leaves a mark in a file of this host:

- on the driver, which bounds a `load()` was planned with: other bounds of the same `load()` are refused;
- in a task, which query reads a plan: another one is refused. All actions of one DataFrame object are one query.

What no source can see: a query without filters that follows one with filters, whose tasks all run on other hosts than
those of the first. The guide says so.
"""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
import time
from pathlib import Path
from typing import Final

from magnetar_spark.errors import InvalidOptions

__all__ = ["check_bounds", "check_query"]

_WAY_OUT: Final = "call load() again for each query, as in spark.read….load().filter(…), or leave out pushFilters"
_OLD_S: Final = 7 * 86_400.0
# How often old marks are looked for: all of them are listed.
_REMOVE_EVERY_S: Final = 3_600.0
_REMOVED: Final = "old-marks-removed"
# Of a DataFrame object, and of an action that has none, such as a write.
_QUERY: Final = ("spark.sql.dataset.queryExecution.id", "spark.sql.execution.id")


def check_bounds(load_id: str, bounds: str) -> None:
    """Raises InvalidOptions where the same `load()` was planned with other bounds."""
    if _first(f"load-{load_id}", bounds) != bounds:
        raise InvalidOptions(
            "this DataFrame was loaded with pushFilters, and another query has pushed other filters, which "
            f"Spark would mix up: {_WAY_OUT}"
        )


def check_query(plan_id: str) -> None:
    """Raises InvalidOptions where another query than the first reads the plan. For tasks."""
    from pyspark import TaskContext

    context = TaskContext.get()
    if not plan_id or context is None:
        return
    query = next((f"{name}={one}" for name in _QUERY if (one := context.getLocalProperty(name))), None)
    if query is None:
        raise InvalidOptions(
            "this DataFrame was loaded with pushFilters, and is read as an RDD, which does not show whether "
            "its filters were pushed: leave out pushFilters"
        )
    if _first(f"plan-{plan_id}", query) != query:
        raise InvalidOptions(
            "this DataFrame was loaded with pushFilters, and a second query would read the messages "
            f"selected by the filters of the first: {_WAY_OUT}"
        )


def _first(name: str, text: str) -> str:
    """Return what was noted under the name first, on this host."""
    folder = _own_folder()
    own = folder / f"{name}.{os.getpid()}.{time.monotonic_ns()}"
    own.write_text(text)
    try:
        # Whole at once, and only if it is not there.
        os.link(own, folder / name)
    except FileExistsError:
        return (folder / name).read_text()
    finally:
        own.unlink()
    _remove_old(folder)
    return text


def _own_folder() -> Path:
    """Raises InvalidOptions where what has this name is not this user's, who alone may change what is in it."""
    folder = Path(tempfile.gettempdir()) / f"magnetar-spark-{os.getuid()}"
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()
    if found.st_uid != os.getuid() or not stat.S_ISDIR(found.st_mode):
        raise InvalidOptions(f"pushFilters stores its marks in {folder}, which is not a folder of this user: remove it")
    return folder


def _remove_old(folder: Path) -> None:
    removed = folder / _REMOVED
    with contextlib.suppress(OSError):
        if time.time() - removed.stat().st_mtime < _REMOVE_EVERY_S:
            return
    removed.touch()
    for file in folder.iterdir():
        with contextlib.suppress(OSError):
            if time.time() - file.stat().st_mtime > _OLD_S:
                file.unlink()
