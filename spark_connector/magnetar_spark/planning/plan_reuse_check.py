"""Refuses a second query on one `load()` with pushed filters: Spark would return the rows of the first query.

Spark 4.3 caches one plan for each `load()` of a Python source, and pushed filters change that plan. After
`sales = load()` the query `sales.filter("index < 10").count()` leaves a plan that a later `sales.count()` reads,
because it has no filter to push. If one query has two different filters, as in a join of both, both sides read the plan
of the second filter. Rows are missing, and Spark does not notice.

The source records what it sees in files of this host, the marks:

- on the driver, the bounds with which a `load()` was planned: other bounds of the same `load()` are refused;
- in a task, the query that reads a plan: another query is refused. All actions of one DataFrame object are one query.

A source can't detect a query without filters that follows one with filters, if all of its tasks run on other hosts than
those of the first. The guide mentions that.
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

__all__ = ["check_same_bounds", "check_same_query"]

_WAY_OUT: Final = "call load() again for each query, as in spark.read….load().filter(…), or leave out pushFilters"
_MAX_AGE_S: Final = 7 * 86_400.0
# How often old marks are removed, for which all of them are listed.
_REMOVE_EVERY_S: Final = 3_600.0
_REMOVED: Final = "old-marks-removed"
# Local properties of Spark that identify a DataFrame object, or an action without one, such as a write.
_QUERY_IDS: Final = ("spark.sql.dataset.queryExecution.id", "spark.sql.execution.id")


def check_same_bounds(load_id: str, bounds: str) -> None:
    """Raise InvalidOptions if the same `load()` was planned with other bounds."""
    if _create_mark(f"load-{load_id}", bounds) != bounds:
        raise InvalidOptions(
            "this DataFrame was loaded with pushFilters, and another query has pushed other filters, which "
            f"Spark would mix up: {_WAY_OUT}"
        )


def check_same_query(plan_id: str) -> None:
    """Raise InvalidOptions if another query than the first reads the plan. Tasks call this."""
    from pyspark import TaskContext

    context = TaskContext.get()
    if not plan_id or context is None:
        return
    query = next((f"{name}={one}" for name in _QUERY_IDS if (one := context.getLocalProperty(name))), None)
    if query is None:
        raise InvalidOptions(
            "this DataFrame was loaded with pushFilters, and is read as an RDD, which does not show whether "
            "its filters were pushed: leave out pushFilters"
        )
    if _create_mark(f"plan-{plan_id}", query) != query:
        raise InvalidOptions(
            "this DataFrame was loaded with pushFilters, and a second query would read the messages "
            f"selected by the filters of the first: {_WAY_OUT}"
        )


def _create_mark(name: str, text: str) -> str:
    """Create a mark with the text unless this host has one of the name. Return the text of the one that it has now."""
    folder = _open_folder()
    own = folder / f"{name}.{os.getpid()}.{time.monotonic_ns()}"
    own.write_text(text)
    try:
        # A link is created atomically, and only if the name is free.
        os.link(own, folder / name)
    except FileExistsError:
        return (folder / name).read_text()
    finally:
        own.unlink()
    _remove_old(folder)
    return text


def _open_folder() -> Path:
    """Return the folder of the marks. Raises InvalidOptions if it belongs to another user, who could change them."""
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
            if time.time() - file.stat().st_mtime > _MAX_AGE_S:
                file.unlink()
