"""PySpark's workers, which a daemon forks, publish with our client, over a real local Spark."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

import magnetar
from magnetar_cli.local_java import NoJava, java_home_for_spark
from magnetar_testing.standalone_process import StandaloneProcess
from tests.running_spark import BRIEF_JAVA

pytestmark = pytest.mark.slow

ROWS: Final = 20
PARTITIONS: Final = 4
LONGEST_S: Final = 240.0

_DRIVER: Final = """
import sys
from pyspark import SparkConf, SparkContext

def send(rows):
    import __main__ as daemon  # in a worker: what was there before it was forked
    return daemon.send_partition(rows)

settings = {
    "spark.driver.extraJavaOptions": "%s",
    "spark.ui.enabled": "false",
    "spark.python.daemon.module": "tests.integration.spark_daemon",
    "spark.python.worker.reuse": "false",  # a fork for each partition
}
context = SparkContext(conf=SparkConf().setMaster("local[2]").setAll(settings.items()))
print("sent", context.parallelize(range(%d), %d).mapPartitions(send).sum(), flush=True)
context.stop()
"""


def test_workers_of_a_daemon_that_has_used_a_client(tmp_path: Path) -> None:
    """CHK-60: the daemon has sent something before it forks its workers; each uses the client that it was forked with,
    and one of its own."""
    pytest.importorskip("pyspark")
    try:
        java_home = java_home_for_spark(tmp_path / "java")
    except NoJava as error:
        pytest.skip(str(error))
    with StandaloneProcess(tmp_path / "data") as server:
        environment = {
            **os.environ,
            "JAVA_HOME": str(java_home),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LAUNCHER_OPTS": BRIEF_JAVA,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_TEST_URL": server.service_url,
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        }
        driver = tmp_path / "driver.py"
        driver.write_text(_DRIVER % (BRIEF_JAVA, ROWS, PARTITIONS))
        found = subprocess.run(
            [sys.executable, driver], env=environment, capture_output=True, text=True, timeout=LONGEST_S, check=False
        )
        assert found.returncode == 0, found.stderr
        assert f"sent {ROWS}" in found.stdout
        with magnetar.Client(server.service_url) as client:
            reader = client.create_reader("spark", magnetar.MessageId.earliest)
            read: list[bytes] = []
            while reader.has_message_available():
                read.append(reader.read_next(10_000).data())
        expected = [b"%s %d" % (whose, row) for whose in (b"inherited", b"own") for row in range(ROWS)]
        assert sorted(read) == sorted([b"the daemon is ready", *expected])
