"""The simulated world: bookies, writers that fight, readers, an admin, and what goes wrong. `world.py` builds it."""
