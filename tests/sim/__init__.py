"""The simulation: whole clusters of production code in virtual time, replayed exactly from a seed.

`loop.py` is the event loop and its processes, `network.py` the transport, `disk.py` the disks, `world/` who does what
to whom, `invariants/` what must never happen. `python -m tests.sim` runs many seeds, or one with its trace.
"""
