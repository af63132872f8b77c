"""The simulation: whole clusters of production code in virtual time, replayed exactly from a seed.

`loop.py` is the event loop and its processes, `network.py` the transport, `disk.py` the disks, `world/` the hosts and
faults of a cluster, `invariants/` the checks. `python -m tests.sim` runs many seeds, or one with its trace.
"""
