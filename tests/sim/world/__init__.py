"""The simulated world: bookies, competing writers, readers, an administrator, and the faults. `world.py` builds it."""
