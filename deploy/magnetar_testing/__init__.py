"""Fixtures and fakes for tests of applications that use Magnetar, and of Magnetar itself.

pytest_plugin        the fixtures; they import the other modules when they are used
in_process_broker    InProcessBroker: the production broker on a thread of the test's process
standalone_process   StandaloneProcess: `magnetar standalone` as a process that can be killed and started again
quick_cluster        running_cluster: ZooKeeper, bookies and brokers as processes
local_zookeeper      LocalZooKeeper: ZooKeeper servers alone
  broker_endpoints   the addresses and clients of the first two
  broker_loop        the event loop of all in-process brokers
clock                ManualClock, a fake clock
randomness           SeededRandomness, the same draws for the same seed
metadata/            a metadata server in memory that injects faults
"""

from __future__ import annotations
