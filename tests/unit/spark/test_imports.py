"""Spark starts several Python processes for a query, and each waits for what they import."""

from __future__ import annotations

import subprocess
import sys


def test_describing_a_query_imports_no_client() -> None:
    code = "import sys, magnetar_spark.source; print([name for name in sys.argv[1:] if name in sys.modules])"
    heavy = ["pydantic", "grpc", "magnetar._client_core", "magnetar.admin._admin", "magnetar_spark.task.slice_reader"]
    ended = subprocess.run([sys.executable, "-c", code, *heavy], capture_output=True, text=True, timeout=60, check=True)
    assert ended.stdout.strip() == "[]"
