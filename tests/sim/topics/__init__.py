"""Topics' logs in the simulated world: brokers that compete for them, and the checks of the logs."""
