"""A topic's log, as a list of ledgers; and the cursors in it, whose state lives in ledgers of their own."""
