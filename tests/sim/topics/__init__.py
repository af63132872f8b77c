"""Topics' logs in the simulated world: brokers that fight for them, and what must hold of it."""
