"""What a bookie keeps its ledgers in: one interface."""
