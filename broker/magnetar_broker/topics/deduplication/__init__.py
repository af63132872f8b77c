"""Deduplication: each message is stored once, however often its producer sends it. rules.py has the theory."""
