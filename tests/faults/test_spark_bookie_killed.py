"""A bookie is killed while a Spark task reads from it: the slice's rows are the same, from the other replicas."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

import magnetar
from magnetar_cli.cluster import LocalCluster
from magnetar_spark.task import slice_reader
from magnetar_testing.quick_cluster import running_cluster
from tests.spark_slices import slices_of

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("Spark without a bookie")]

TOPIC = "persistent://public/default/read-on"
# Of 32 KiB: enough that several answers are left after the first.
MESSAGES = 1500


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    striped = {
        "managed_ledger_default_ensemble_size": 3,
        "managed_ledger_default_write_quorum": 2,
        "managed_ledger_default_ack_quorum": 2,
    }
    with running_cluster(tmp_path_factory.mktemp("cluster"), bookies=3, brokers=1, broker_settings=striped) as cluster:
        yield cluster


def test_rows_are_the_same_when_a_bookie_is_killed_while_they_are_read(cluster: LocalCluster) -> None:
    """SPK-3, SPK-5: entries are striped over three bookies, two of which hold each; one of them is killed with -9, or
    hangs, after the first rows."""
    with magnetar.Client(cluster.service_url, operation_timeout_seconds=60) as client:
        client.subscribe(TOPIC, "keeps").close()
        with client.create_producer(TOPIC, batching_enabled=False, block_if_queue_full=True) as producer:
            for number in range(MESSAGES):
                producer.send_async(b"%06d" % number * 5_000, None)
            producer.flush()
    (one,) = slices_of(cluster.service_url, TOPIC)
    faults: list[tuple[str, Callable[[str], object], Callable[[str], object]]] = [
        ("bookie-2", cluster.kill, cluster.start),
        ("bookie-3", cluster.pause, cluster.resume),
    ]
    for name, inject, mend in faults:
        numbers: list[int] = []
        for batch in slice_reader.read_slice(one, ("value", "index")):
            values = batch.column("value")
            numbers += [int(values[index].as_py()[:6]) for index in range(batch.num_rows)]
            if len(numbers) == batch.num_rows:
                inject(name)
        assert numbers == [*range(MESSAGES)]
        mend(name)
